#!/usr/bin/env python3
"""Runs a test program, and each of its tests that failed once more: run_once_more.py NAME BUILD LIMIT COMMAND...

ctest calls it with the name of its own test, the build folder and a limit in seconds. COMMAND is a binary of GoogleTest, a run of
pytest, or any program, which is one test then. A test that passes the second time is printed and stands in BUILD/retried_tests.txt;
what the first run has printed is kept in BUILD/first_failures/NAME.txt. RETRIED names tests that may need a second try; when more
than OTHERS of the rest have needed one since the file was removed, as ./test.sh does, this is a failure. A program that exceeds the
limit is ended, and fails: the stacks of its processes are kept in BUILD/first_failures/NAME.stacks.txt.

Each test that skips itself stands in BUILD/skipped_tests.txt with its reason. Where MAY_SKIP names a file of regular expressions,
one a line, a test whose reason none of them matches fails.
"""

import fcntl
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

RETRIED = {}  # the name of a test: the reason why it may need a second try
OTHERS = 5  # ranks meet over ports that other programs use as well
AT_A_TIME = 3  # more failures in one program than these are no accident


class GoogleTest:
    def __init__(self, command):
        self.command = command

    def whole(self):
        return self.command, {}

    def only(self, tests):
        return [*self.command, "--gtest_filter=" + ":".join(tests)], {"GTEST_TOTAL_SHARDS": None, "GTEST_SHARD_INDEX": None}

    def read(self, text):
        """Returns the tests that failed, and the one that was running at the end, which is None where all have ended."""
        begun = dict.fromkeys(re.findall(r"\[ RUN      \] (\S+)", text))
        passed = set(re.findall(r"\[(?:       OK|  SKIPPED) \] (\S+)", text))
        failed = [name for name in begun if name not in passed]
        ended = re.search(r"^\[==========\] .* ran\.", text, re.MULTILINE)
        return failed, None if ended or not failed else failed[-1]

    def skipped(self, text):
        """Returns the reason and the name of each test that has skipped itself."""
        return re.findall(r"^\S+: Skipped\n(.*)\n(?:.*\n)*?\[  SKIPPED \] (\S+) \(", text, re.MULTILINE)

    def not_begun(self, text):
        """Returns the tests of the share of this program that a run has not come to."""
        listed = subprocess.run([*self.command, "--gtest_list_tests"], capture_output=True, text=True, check=True).stdout
        suite, names = "", []
        for line in listed.splitlines():
            line = line.partition("#")[0].rstrip()
            if line.startswith("  "):
                names.append(suite + line.strip())
            elif re.fullmatch(r"\S+\.", line):
                suite = line
        names = [name for name in names if "DISABLED_" not in name]
        shards, shard = int(os.environ.get("GTEST_TOTAL_SHARDS", 1)), int(os.environ.get("GTEST_SHARD_INDEX", 0))
        return [name for name in names[shard::shards] if f"[ RUN      ] {name}\n" not in text]


class Pytest:
    def __init__(self, command):
        self.command = [*command[:-1], "-v", "-rs"]
        self.file = command[-1]

    def whole(self):
        return [*self.command, self.file], {}

    def only(self, tests):
        return [*self.command, *(f"{self.file}::{test}" for test in tests)], {}

    def read(self, text):
        failed = re.findall(r"^[^\s:]+::(.+) (?:FAILED|ERROR) +\[ *[0-9]+%\]$", text, re.MULTILINE)
        if re.search(r"^=+ .* in [0-9.]+s.* =+$", text, re.MULTILINE):
            return list(dict.fromkeys(failed)), None
        running = re.findall(r"^[^\s:]+::(\S+)", text, re.MULTILINE)
        return [], running[-1] if running else None

    def skipped(self, text):
        return [(reason, place) for place, reason in re.findall(r"^SKIPPED \[[0-9]+\] (\S+): (.*)$", text, re.MULTILINE)]

    def not_begun(self, text):
        return None  # nothing tells them


class Program:
    def __init__(self, command, name):
        self.command, self.name = command, name

    def whole(self):
        return self.command, {}

    def only(self, tests):
        return self.command, {}

    def read(self, text):
        return [self.name], None

    def skipped(self, text):
        # Those of a program of unittest; else its exit status tells.
        return [(reason, test) for test, reason in re.findall(r"^(\w+) \(.*\) \.\.\. skipped ['\"](.*)['\"]$", text, re.MULTILINE)]

    def not_begun(self, text):
        return []


class Runner:
    def __init__(self, name, build, limit, command):
        self.name, self.build = name, pathlib.Path(build)
        self.deadline = time.monotonic() + float(limit)
        self.kept = self.build / "first_failures" / f"{name}.txt"
        if "pytest" in command:
            self.kind = Pytest(command)
        elif re.search("(_tests|_fragments)$", command[0]):
            self.kind = GoogleTest(command)
        else:
            self.kind = Program(command, name)

    def run(self, command, changes):
        """Returns the exit status and what was printed. A run beyond the limit ends the program."""
        env = {key: value for key, value in {**os.environ, **changes}.items() if value is not None}
        with tempfile.TemporaryFile() as printed:
            process = subprocess.Popen(command, env=env, stdout=printed, stderr=subprocess.STDOUT, start_new_session=True)
            try:
                status = process.wait(max(1.0, self.deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                status = None
                self.keep_stacks(process.pid)
            finally:
                if process.poll() is None:
                    for left in session_of(process.pid):
                        os.kill(int(left.name), signal.SIGKILL)
                    process.wait()
            printed.seek(0)
            return status, printed.read().decode(errors="replace")

    def keep_stacks(self, leader):
        file, gdb = self.kept.with_suffix(".stacks.txt"), shutil.which("gdb")
        file.parent.mkdir(exist_ok=True)
        with open(file, "w") as out:
            for process in session_of(leader):
                words = (process / "cmdline").read_text().replace("\0", " ")
                waits = [f"{(task / 'comm').read_text().strip()}: {(task / 'wchan').read_text()}" for task in (process / "task").iterdir()]
                print(f"--- process {process.name}: {words}", *waits, sep="\n", file=out, flush=True)
                if gdb:
                    asked = [gdb, "-p", process.name, "-batch", "-ex", "thread apply all bt 40"]
                    subprocess.run(["timeout", "30", *asked], stdout=out, stderr=subprocess.DEVNULL)
        print(f"{self.name} exceeds its limit and is ended; the stacks of its processes: {file}")

    def keep(self, text):
        self.kept.parent.mkdir(exist_ok=True)
        with open(self.kept, "a") as file:
            file.write(text)

    def main(self):
        for file in (self.kept, self.kept.with_suffix(".stacks.txt")):
            file.unlink(missing_ok=True)
        status, text = self.run(*self.kind.whole())
        if status in (0, 77):  # 77: it has skipped itself
            print("\n".join(text.rstrip().splitlines()[-3:]))
            skipped = [(text.rstrip().rpartition("\n")[2], self.name)] if status == 77 else self.kind.skipped(text)
            return self.note_skips(skipped) or status
        self.keep(text)
        failed, running = self.kind.read(text)
        if running:
            print(f"{self.name} ended with {status} while {running} ran")
        rest = self.kind.not_begun(text) if running else []
        if status is None or rest is None or not 0 < len(failed) <= AT_A_TIME:
            return self.fail(text)
        if rest:
            status, text = self.run(*self.kind.only(rest))
            self.keep(text)
            if status != 0:
                return self.fail(text)
        for test in failed:
            status, text = self.run(*self.kind.only([test]))
            if status != 0:
                return self.fail(text)
        return self.note(failed)

    def fail(self, text):
        print(text, end="")
        print(f"\n{self.name} failed; what its first run has printed: {self.kept}")
        return 1

    def note_skips(self, skipped):
        """Adds to the list of tests that skip themselves; returns whether one of them may not."""
        with open(self.build / "skipped_tests.txt", "a") as file:
            file.writelines(f"{self.name} {test}: {reason}\n" for reason, test in skipped)
        if "MAY_SKIP" not in os.environ:
            return 0
        allowed = [line for line in pathlib.Path(os.environ["MAY_SKIP"]).read_text().splitlines() if line]
        wrong = [(reason, test) for reason, test in skipped if not any(re.search(one, reason) for one in allowed)]
        for reason, test in wrong:
            print(f"{test} may not skip itself here, which it does since {reason} ({os.environ['MAY_SKIP']})")
        return int(bool(wrong))

    def note(self, tests):
        """Adds to the list of tests that needed a second try; returns whether these are too many."""
        with open(self.build / "retried_tests.txt", "a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            for test in tests:
                reason = RETRIED.get(test)
                file.write(f"{self.name} {test}{': ' + reason if reason else ''}\n")
                print(f"{test} passed at the second try; what its first one has printed: {self.kept}")
            file.seek(0)
            others = [line for line in file if line.split(":")[0].split()[1] not in RETRIED]
        if len(others) <= OTHERS or all(test in RETRIED for test in tests):
            return 0
        print(f"{len(others)} tests have needed a second try, expected {OTHERS} at most:\n" + "".join(others))
        return 1


def session_of(leader):
    """Returns the folders in /proc of the processes in a session."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if int((process / "stat").read_text().rsplit(")", 1)[1].split()[3]) == leader:
                found.append(process)
        except OSError:
            pass  # it has ended
    return found


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background job ignores it, and so would what tests interrupt
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what it has started ends with it
    sys.exit(Runner(*sys.argv[1:4], sys.argv[4:]).main())
