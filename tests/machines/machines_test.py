"""The launcher over three machines (machines.py), through each runner that is installed: machines_test.py BUILD PYTHON [unittest's words].

BUILD is the build folder. PYTHON, or -, is an interpreter with torch, for jobs in Python. DS_MACHINES_TIMES repeats each way in which
a job may be lost so often, and tells the longest time until its end.
"""

import os
import signal
import sys
import unittest

import machines

MODULES = ["job_arrival", "job_ends", "job_training"]  # job_accelerate needs Accelerate

if __name__ == "__main__":
    reason = "" if os.environ.get(machines.INSIDE) else machines.why_not()
    if reason:
        print(f"skipped: machines of network namespaces: {reason}")
        sys.exit(77)
    machines.enter()
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):  # a shell's background ignores them, and so would the jobs
        signal.signal(number, signal.SIG_DFL)
    names = [] if any(word.startswith("job_") for word in sys.argv) else MODULES
    unittest.main(module=None, argv=[sys.argv[0], *sys.argv[3:], *names], verbosity=2)
