"""The launcher over three machines (machines.py), through each runner that is installed: machines_test.py BUILD PYTHON [unittest's words].

BUILD is the build folder. PYTHON, or -, is an interpreter with torch, for jobs in Python. DS_MACHINES_TIMES repeats each way in which
a job may be lost so often, and tells the longest time until its end.
"""

import os
import sys
import unittest

import machines
from job_arrival import ArrivalTest as ArrivalTest
from job_ends import EndsTest as EndsTest
from job_training import TrainingTest as TrainingTest

if __name__ == "__main__":
    reason = "" if os.environ.get(machines.INSIDE) else machines.why_not()
    if reason:
        print(f"skipped: machines of network namespaces: {reason}")
        sys.exit(77)
    machines.enter()
    del sys.argv[1:3]
    unittest.main(verbosity=2)
