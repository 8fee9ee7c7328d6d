#!/usr/bin/env python3
"""What run_once_more.py makes of programs whose tests fail once, always, by a signal, or never end."""

import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest

RUNNER = pathlib.Path(__file__).with_name("run_once_more.py")

# Prints what a binary of GoogleTest does. B.bad fails as the first argument says, and only the first time where that ends in "once".
PROGRAM = """#!/usr/bin/env python3
import os, pathlib, signal, sys, time
how, flags = sys.argv[1], dict(word.partition("=")[::2] for word in sys.argv[2:])
tests = ["A.good", "B.bad", "B.last"]
if "--gtest_list_tests" in flags:
    print("A.\\n  good\\nB.\\n  bad  # a value\\n  DISABLED_not\\n  last")
    sys.exit()
if "--gtest_filter" in flags:
    tests = flags["--gtest_filter"].split(":")
elif "GTEST_TOTAL_SHARDS" in os.environ:
    tests = tests[int(os.environ["GTEST_SHARD_INDEX"]) :: int(os.environ["GTEST_TOTAL_SHARDS"])]
mark = pathlib.Path(sys.argv[0] + ".mark")
code = 0
for test in tests:
    print(f"[ RUN      ] {test}", flush=True)
    with open(sys.argv[0] + ".ran", "a") as ran:
        ran.write(test + " ")
    if test == "B.last" and how == "skip":
        print("some.cpp:12: Skipped\\nno second disk\\n")
        print(f"[  SKIPPED ] {test} (0 ms)")
    elif test == "B.bad" and how not in ("well", "skip") and not (how.endswith("once") and mark.exists()):
        mark.touch()
        print("the reason", flush=True)
        if how.startswith("crash"):
            os.kill(os.getpid(), signal.SIGSEGV)
        if how == "hang":
            time.sleep(600)
        print(f"[  FAILED  ] {test} (1 ms)")
        code = 1
    else:
        print(f"[       OK ] {test} (0 ms)")
print("[==========] some tests ran. (2 ms total)")
sys.exit(code)
"""


class RunOnceMore(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.program = self.folder / "some_tests"
        self.program.write_text(PROGRAM)
        self.program.chmod(self.program.stat().st_mode | stat.S_IXUSR)

    def run_it(self, how, limit=100, **env):
        for name in ("some_tests.mark", "some_tests.ran"):
            (self.folder / name).unlink(missing_ok=True)
        command = [sys.executable, RUNNER, "some", self.folder, str(limit), self.program, how]
        ended = subprocess.run(command, capture_output=True, text=True, env=env)
        self.printed, self.ran = ended.stdout, (self.folder / "some_tests.ran").read_text().split()
        return ended.returncode

    def noted(self):
        file = self.folder / "retried_tests.txt"
        return file.read_text().splitlines() if file.exists() else []

    def test_what_passes_runs_once(self):
        self.assertEqual(self.run_it("well"), 0)
        self.assertEqual((self.ran, self.noted()), (["A.good", "B.bad", "B.last"], []))

    def test_a_test_that_fails_once_is_tried_again_alone_and_noted(self):
        self.assertEqual(self.run_it("fail_once", GTEST_TOTAL_SHARDS="1", GTEST_SHARD_INDEX="0"), 0)
        self.assertEqual((self.ran, self.noted()), (["A.good", "B.bad", "B.last", "B.bad"], ["some B.bad"]))
        self.assertIn("the reason", (self.folder / "first_failures/some.txt").read_text())

    def test_a_test_that_fails_twice_fails(self):
        self.assertEqual(self.run_it("fail"), 1)
        self.assertEqual(self.noted(), [])
        self.assertIn("the reason", self.printed)

    def test_after_a_crash_the_tests_of_the_share_that_did_not_run_do(self):
        self.assertEqual(self.run_it("crash_once"), 0)
        self.assertEqual((self.ran, self.noted()), (["A.good", "B.bad", "B.last", "B.bad"], ["some B.bad"]))
        self.assertEqual(self.run_it("crash_once", GTEST_TOTAL_SHARDS="2", GTEST_SHARD_INDEX="1"), 0)
        self.assertEqual(self.ran, ["B.bad", "B.bad"])

    def test_what_skips_itself_is_noted_and_fails_where_its_reason_is_not_allowed(self):
        self.assertEqual(self.run_it("skip"), 0)
        self.assertEqual((self.folder / "skipped_tests.txt").read_text(), "some B.last: no second disk\n")
        allowed = self.folder / "may_skip.txt"
        for reasons, status in (("^no second", 0), ("", 1), ("a network\n\n", 1), ("a network\nsecond disk", 0)):
            allowed.write_text(reasons)
            self.assertEqual(self.run_it("skip", MAY_SKIP=str(allowed)), status)
        self.run_it("skip", MAY_SKIP=os.devnull)
        self.assertIn("B.last may not skip itself", self.printed)

    def test_the_list_may_not_grow(self):
        self.assertEqual([self.run_it("fail_once") for _ in range(6)], [0, 0, 0, 0, 0, 1])
        self.assertIn("6 tests have needed a second try", self.printed)

    def test_what_hangs_is_ended_with_its_stacks(self):
        self.assertEqual(self.run_it("hang", limit=15), 1)
        self.assertIn("while B.bad ran", self.printed)
        self.assertIn("some_tests hang", (self.folder / "first_failures/some.stacks.txt").read_text())


if __name__ == "__main__":
    unittest.main()
