#!/usr/bin/env python3
"""Ends a training with SIGKILL at random moments of its savings, all ranks or one, and resumes it each time.

    kill_saves.py <crash_saver> [--rounds 500] [--seed 1] [--folder DIR]
    kill_saves.py <crash_saver> --faults <libcrash_faults.so>     before every call that changes files, in turn

Each round resumes from what the round before left. Lost is a saving that had returned and that is not whole, by the
checksums of its manifest, or that a resume does not come back to; so is a file of the user in the folder of a tag. Ends with 1
where one is lost.
"""

import argparse
import pathlib
import random
import shutil
import sys
import tempfile
import time

from saver import History, Saver, Tally

SETTINGS = [  # one folder of checkpoints each
    dict(world=2, stage=1, tags="new"),
    dict(world=2, stage=2, tags="same"),
    dict(world=2, stage=1, tags="new", keep_last=2),
    dict(world=1, stage=0, tags="same"),
    dict(world=3, stage=2, tags="new", keep_last=1),
    dict(world=2, stage=0, tags="new"),
    dict(world=2, stage=2, tags="same", decoupled=1),
]
ROUNDS_A_FOLDER = 12


class KillTally(Tally):
    def __init__(self):
        super().__init__()
        self.leftovers = self.hung = 0

    def count(self, run, history, wrong):
        self.leftovers += bool(history.leftovers())
        return super().count(run, history, wrong)

    def print(self):
        print(f"{'rounds':>8} {'killed in a save':>17} {'saves returned':>15} {'leftovers found':>16} {'hung':>5} {'lost':>5}")
        print(f"{self.rounds:8} {self.within:17} {self.returned:15} {self.leftovers:16} {self.hung:5} {len(self.lost):5}")
        self.print_lost()


def check_at_end(options, folder, history, setting, tally):
    """Nothing ends the last run: it has to come back to what was there."""
    run = Saver(options.program, folder, **dict(setting, saves=1))
    if not run.end(patience=60) or run.process.returncode != 0:
        tally.lost.append(f"the last run failed: {run.errors.strip()}")
    tally.lost += history.add(run) + history.losses()
    left = history.leftovers()
    if left:
        tally.lost.append(f"left over: {left}")


def kill_at_random(options, folder, history, setting, seconds, tally):
    run = Saver(options.program, folder, **setting)
    running = run.wait_for("saving", count=random.randint(1, 3))
    if running:
        time.sleep(random.uniform(0, 1.1 * seconds))
        if random.random() < 0.5 or setting["world"] == 1:
            run.kill_all()
        else:
            run.kill_rank(random.randrange(setting["world"]))
    ended = run.end(patience=20)
    tally.hung += not ended
    wrong = history.add(run)
    if not running:
        wrong.append(f"the program ended by itself: {run.errors.strip()}")
    tally.count(run, history, wrong)
    return run.save_seconds() or seconds


def random_rounds(options, base, tally):
    seconds = 0.1
    for first in range(0, options.rounds, ROUNDS_A_FOLDER):
        setting = SETTINGS[first // ROUNDS_A_FOLDER % len(SETTINGS)]
        folder = base / str(first)
        history = History(folder, setting.get("keep_last", 0))
        for _ in range(first, min(options.rounds, first + ROUNDS_A_FOLDER)):
            seconds = kill_at_random(options, folder, history, setting, seconds, tally)
        check_at_end(options, folder, history, setting, tally)
        shutil.rmtree(folder)


def every_call(options, base, tally):
    for name, setting in [("new", dict(world=1, tags="new", keep_last=1)), ("same", dict(world=1, tags="same"))]:
        folder = base / name
        history = History(folder, setting.get("keep_last", 0))
        setting["ballast"] = 4096
        of_user = folder / "same" / "tokenizer.json"  # in the folder of the tag that is saved again and again
        laid = False
        call = 0
        while True:
            call += options.every
            run = Saver(
                options.program, folder, saves=2, **setting, faults=dict(LD_PRELOAD=options.faults, FAULTS_AT=str(call), FAULTS_DO="kill")
            )
            run.end(patience=60)
            wrong = history.add(run)
            if laid and not of_user.exists():
                wrong.append(f"call {call}: the user's file in the tag's folder is gone")
            tally.count(run, history, wrong)
            if not laid and of_user.parent.is_dir():
                of_user.write_text("{}")
                laid = True
            if run.process.returncode == 0:
                break
        check_at_end(options, folder, history, setting, tally)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", help="where the checkpoints go; default: a temporary folder")
    parser.add_argument("--faults", help="libcrash_faults.so: kill before each call instead of at random")
    parser.add_argument("--every", type=int, default=1, help="with --faults: of the calls only every so many-th")
    options = parser.parse_args()
    random.seed(options.seed)
    tally = KillTally()
    with tempfile.TemporaryDirectory(dir=options.folder) as base:
        (every_call if options.faults else random_rounds)(options, pathlib.Path(base), tally)
    tally.print()
    sys.exit(bool(tally.lost or tally.hung))


if __name__ == "__main__":
    main()
