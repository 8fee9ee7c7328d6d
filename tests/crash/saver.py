"""Runs crash_saver, keeps what it reported, and checks a folder of checkpoints against these reports."""

import json
import os
import pathlib
import queue
import signal
import socket
import subprocess
import threading
import time
import zlib


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Saver:
    """One run of the program. `events` holds (time, words) of its lines in order."""

    def __init__(self, program, folder, faults=None, **options):
        words = [f"{key}={value}" for key, value in options.items()]
        environment = dict(os.environ, **(faults or {}))
        self.process = subprocess.Popen(
            [program, f"dir={folder}", f"port={free_port()}", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )
        self.events = []
        self.arrived = queue.Queue()
        self.errors = ""
        self.readers = [threading.Thread(target=self._read), threading.Thread(target=self._read_errors)]
        for reader in self.readers:
            reader.start()

    def _read(self):
        for line in self.process.stdout:
            event = (time.monotonic(), line.split())
            self.events.append(event)
            self.arrived.put(event)
        self.arrived.put(None)

    def _read_errors(self):
        self.errors = self.process.stderr.read()

    def wait_for(self, word, count=1, patience=60):
        """Waits for the count-th line that starts with `word`; False where the program ends before."""
        deadline = time.monotonic() + patience
        while count > 0:
            try:
                event = self.arrived.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise SystemExit(f"no line '{word}' within {patience} s: {self.events}") from None
            if event is None:
                return False
            count -= event[1][0] == word
        return True

    def words(self, first):
        return [words for _, words in self.events if words[0] == first]

    def kill_all(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def kill_rank(self, rank):
        for words in self.words("rank"):
            if int(words[1]) == rank:
                os.kill(int(words[2]), signal.SIGKILL)

    def end(self, patience=0):
        """Waits for all ranks, at most `patience` seconds, then kills them; whether they had ended alone."""
        try:
            self.process.wait(timeout=max(patience, 0.001))
            alone = True
        except subprocess.TimeoutExpired:
            alone = False
        self.kill_all()
        self.process.wait()
        for reader in self.readers:
            reader.join()
        return alone

    def save_seconds(self):
        """Of the last saving that returned."""
        begins = {words[2]: at for at, words in self.events if words[0] == "saving"}
        ends = [(at, words[2]) for at, words in self.events if words[0] == "saved"]
        return ends[-1][0] - begins[ends[-1][1]] if ends else None


def find_damage(tag_folder):
    """What is wrong with the folder of a tag by its manifest; None: it is whole."""
    try:
        manifest = json.loads((tag_folder / "manifest.json").read_text())
        for name, sums in manifest["files"].items():
            content = (tag_folder / name).read_bytes()
            if len(content) != sums["bytes"]:
                return f"{name} has {len(content)} bytes, expected {sums['bytes']}"
            chunk = manifest["chunk_bytes"]
            digits = "".join(f"{zlib.crc32(content[at : at + chunk]):08x}" for at in range(0, len(content), chunk))
            if digits != sums["crc32"]:
                return f"{name} is altered"
    except (OSError, ValueError, KeyError) as error:
        return f"{type(error).__name__}: {error}"
    return None


class Tally:
    """What both scripts count, round by round."""

    def __init__(self):
        self.rounds = self.within = self.returned = 0
        self.lost = []

    def count(self, run, history, wrong):
        """Whether the round was good; `wrong` is what was seen of it, beside what is lost in the folder."""
        self.rounds += 1
        self.returned += len(run.words("saved"))
        last = [words for _, words in run.events if words[0] in ("saving", "saved")][-1:]
        self.within += bool(last) and last[0][0] == "saving"
        wrong = wrong + history.losses()
        if wrong:
            self.lost.append(f"round {self.rounds}: " + "; ".join(wrong))
        return not wrong

    def print_lost(self):
        for line in self.lost[:20]:
            print(line)


class History:
    """What savings into one folder have returned, over many runs of the program."""

    def __init__(self, folder, keep_last=0):
        self.folder = pathlib.Path(folder)
        self.keep_last = keep_last
        self.step = 0  # of the newest saving that returned
        self.tags = {}  # tag: step
        self.digests = {}  # step: digest

    def add(self, run):
        """Takes the reports of a run; returns what contradicts the ones before."""
        wrong = []
        for _, words in run.events:
            if words[0] == "resumed":
                step, digest = int(words[1]), words[2]
                if step < self.step:
                    wrong.append(f"resumed at step {step}, but the saving of step {self.step} had returned")
                if step > 0 and self.digests.get(step, digest) != digest:
                    wrong.append(f"step {step} came back with other values")
            elif words[0] == "saved":
                tag, step, digest = words[1], int(words[2]), words[3]
                if self.digests.setdefault(step, digest) != digest:
                    wrong.append(f"step {step} was trained to other values")
                self.step = max(self.step, step)
                self.tags[tag] = step
        return wrong

    def losses(self):
        """Savings that had returned and that are not whole in the folder."""
        if not self.tags:
            return []
        wrong = []
        try:
            latest = (self.folder / "latest").read_text().strip()
            if damage := find_damage(self.folder / latest):
                wrong.append(f"latest names {latest}: {damage}")
        except OSError as error:
            wrong.append(f"latest: {error}")
        newest = sorted(self.tags, key=self.tags.get)[-1:] if self.keep_last else list(self.tags)
        for tag in newest:
            if damage := find_damage(self.folder / tag):
                # A newer one that had not returned yet may have pushed it out.
                if self.keep_last == 1 and damage.startswith("FileNotFoundError") and not wrong:
                    continue
                wrong.append(f"{tag}: {damage}")
        return wrong

    def leftovers(self):
        return (
            [
                entry.name
                for entry in self.folder.iterdir()
                if (entry.name.startswith(".") and entry.name != ".writers") or entry.name.endswith(".tmp")
            ]
            if self.folder.is_dir()
            else []
        )
