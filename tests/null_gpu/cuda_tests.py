#!/usr/bin/env python3
"""Runs tests/cuda on the null GPU: cuda_tests.py PROGRAM.

Kernels do nothing there, so that a test may find wrong values, and they alone. It fails by an exception, by a launch that CUDA refuses,
by a crash or a hang, or where it is one of those that compare no values.
"""

import json
import os
import re
import subprocess
import sys
import tempfile

# What these hold does not come from a kernel.
WITHOUT_VALUES = re.compile(r"CudaGraphs[.](?!Draw|AreOf|Give|LeaveNoCasts|Hold|FollowBuffers)|CudaTest[.](?!HostMemory|CopiesOf)")
NO_VALUE = re.compile(r"exception with description|\[null gpu\]|\[null nccl\]")
OF_VALUES = re.compile(r"gradient is not finite")  # nor is what memory held before


def main():
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.json")
        done = subprocess.run([sys.argv[1], f"--gtest_output=json:{report}", "--gtest_brief=1"], capture_output=True, text=True,
                              errors="replace")  # fmt: skip
        if not os.path.exists(report):
            print(done.stdout[-5000:], done.stderr[-5000:], f"it has ended with {done.returncode}, before its tests")
            return 1
        suites = json.load(open(report, encoding="utf-8"))["testsuites"]
    num_tests, wrong = 0, []
    for test in (test for suite in suites for test in suite["testsuite"]):
        name = f"{test['classname']}.{test['name']}"
        num_tests += test["result"] == "COMPLETED"
        failures = [failure["failure"] for failure in test.get("failures", [])]
        if WITHOUT_VALUES.search(name):
            wrong += [f"{name}: {failure}" for failure in failures]
        else:
            wrong += [f"{name}: {failure}" for failure in failures if NO_VALUE.search(failure) and not OF_VALUES.search(failure)]
    wrong += [line for line in done.stderr.splitlines() if NO_VALUE.search(line)]
    for text in wrong:
        print(text)
    print(f"{num_tests} tests have ended, {len(wrong)} failures that no value explains")
    return 1 if wrong or num_tests < 50 else 0


if __name__ == "__main__":
    sys.exit(main())
