#!/usr/bin/env python3
"""Cuts the power of the file system under a training that saves: an ext4 in a loop-mounted file, ended by the ioctl
EXT4_IOC_SHUTDOWN without a flush of its log at random moments, then mounted again and resumed from.

    cut_power.py <crash_saver> [--rounds 200] [--seed 1] [--folder DIR]
    cut_power.py <crash_saver> --faults <libcrash_faults.so> --every-call         before every call that changes files
    cut_power.py <crash_saver> --faults <libcrash_faults.so> --without files      as if the library left an fsync out;
                                                                                   --expect-loss: then loss is success

Lost is a saving that had returned and that is not whole after the cut, by the checksums of its manifest, or that a
resume does not come back to. Ends with 1 where one is lost, with 77 where such a file system cannot be made here.
"""

import argparse
import fcntl
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import time

from saver import History, Saver, Tally

EXT4_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2
SETTINGS = [
    dict(world=2, stage=1, tags="new", keep_last=2),
    dict(world=1, stage=1, tags="same"),
    dict(world=2, stage=2, tags="new"),
    dict(world=1, stage=0, tags="new", keep_last=1),
    dict(world=2, stage=1, tags="new", decoupled=1),
]
ROUNDS_A_SETTING = 10


class Disk:
    """An ext4 in a file."""

    def __init__(self, base):
        self.image = base / "disk.img"
        self.mount_point = base / "disk"
        self.mount_point.mkdir()
        with open(self.image, "wb") as image:
            image.truncate(512 << 20)
        self.call("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", self.image)
        self.mount()

    def call(self, *words):
        subprocess.run(words, check=True, capture_output=True, text=True)

    def mount(self):
        self.call("mount", "-o", "loop", self.image, self.mount_point)

    def unmount(self):
        for _ in range(100):
            try:
                return self.call("umount", self.mount_point)
            except subprocess.CalledProcessError as error:  # a process has not quite ended
                reason = error.stderr
                time.sleep(0.05)
        raise SystemExit(reason)

    def cut(self):
        folder = os.open(self.mount_point, os.O_RDONLY)
        fcntl.ioctl(folder, EXT4_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        os.close(folder)

    def come_back(self):
        self.unmount()
        self.mount()

    def check(self):
        """Whether the file system itself came through."""
        self.unmount()
        result = subprocess.run(["e2fsck", "-fn", self.image], capture_output=True, text=True, check=False)
        self.mount()
        return [] if result.returncode == 0 else [result.stdout]


class CutTally(Tally):
    def print(self, left_out):
        print(f"{'fsync left out':>15} {'cuts':>6} {'cut in a save':>14} {'saves returned':>15} {'lost':>5}")
        print(f"{left_out or 'none':>15} {self.rounds:6} {self.within:14} {self.returned:15} {len(self.lost):5}")
        self.print_lost()


def faults_of(options, disk, **more):
    if not options.faults:
        return {}
    faults = dict(LD_PRELOAD=options.faults, FAULTS_MOUNT=str(disk.mount_point), **more)
    return dict(faults, FAULTS_SKIP=options.without) if options.without else faults


def cut_at_random(options, disk, folder, history, setting, seconds, tally):
    run = Saver(
        options.program, folder, **setting, pause_ms=150 if options.without else random.choice([0, 0, 30]), faults=faults_of(options, disk)
    )
    running = run.wait_for("saving", count=random.randint(1, 4))
    time.sleep(random.uniform(0, 1.5 * seconds))
    disk.cut()
    run.end(patience=random.choice([0, 0, 2]))  # some see what a save says on such a disk
    disk.come_back()
    wrong = history.add(run)
    if not running:
        wrong.append(f"the program ended by itself: {run.errors.strip()}")
    return tally.count(run, history, wrong), run.save_seconds() or seconds


def random_rounds(options, disk, tally):
    seconds = 0.1
    number = 0
    history = None
    for round_number in range(options.rounds):
        setting = SETTINGS[round_number // ROUNDS_A_SETTING % len(SETTINGS)]
        if round_number % ROUNDS_A_SETTING == 0 or history is None:
            number += 1
            folder = disk.mount_point / str(number)
            subprocess.run(["rm", "-rf", disk.mount_point / str(number - 1)], check=True)
            history = History(folder, setting.get("keep_last", 0))
        good, seconds = cut_at_random(options, disk, folder, history, setting, seconds, tally)
        if not good:
            history = None  # what is lost is counted once


def every_call(options, disk, tally):
    for name, setting in [("new", dict(tags="new", keep_last=1)), ("same", dict(tags="same"))]:
        folder = disk.mount_point / name
        history = History(folder, setting.get("keep_last", 0))
        call = 0
        while True:
            call += options.every
            run = Saver(
                options.program,
                folder,
                saves=2,
                ballast=4096,
                **setting,
                faults=faults_of(options, disk, FAULTS_AT=str(call), FAULTS_DO="cut"),
            )
            run.end(patience=60)
            if run.process.returncode == 0:  # it made fewer calls
                disk.cut()
            disk.come_back()
            tally.count(run, history, history.add(run))
            if run.process.returncode == 0:
                break


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", help="where the file of the disk goes; default: a temporary folder")
    parser.add_argument("--faults", help="libcrash_faults.so")
    parser.add_argument("--every-call", action="store_true")
    parser.add_argument("--every", type=int, default=1, help="with --every-call: only every so many-th")
    parser.add_argument("--without", help="files, folders, all, or n/k: the n-th fsync of every k does nothing")
    parser.add_argument("--expect-loss", action="store_true")
    options = parser.parse_args()
    random.seed(options.seed)
    if os.geteuid() != 0:
        print("skipped: mounting a file system needs root")
        sys.exit(77)
    tally = CutTally()
    with tempfile.TemporaryDirectory(dir=options.folder) as base:
        try:
            disk = Disk(pathlib.Path(base))
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"skipped: no ext4 can be mounted from a file here: {error} {getattr(error, 'stderr', '')}")
            sys.exit(77)
        try:
            (every_call if options.every_call else random_rounds)(options, disk, tally)
            tally.lost += disk.check()
        finally:
            disk.unmount()
    tally.print(options.without)
    sys.exit(bool(tally.lost) != options.expect_loss)


if __name__ == "__main__":
    main()
