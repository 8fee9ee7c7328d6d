"""Host memory that is left, and programs that are stopped before they take the last of it: a machine that is out of memory
ends whatever it likes, the comparison included."""

import pathlib
import subprocess
import threading

LEAST_LEFT = 3 << 30  # bytes
CGROUP = pathlib.Path("/sys/fs/cgroup")


def number_in(path):
    try:
        text = path.read_text().strip()
        return int(text) if text.isdigit() else None
    except OSError:
        return None


def kibibytes(path, key):
    for line in path.read_text().splitlines():
        if line.split()[0].rstrip(":") == key:
            return int(line.split()[1])
    return 0


def bytes_left(cgroup=CGROUP, meminfo=pathlib.Path("/proc/meminfo")):
    """Of the machine, or of the container where that has a limit of its own; what files hold in memory counts as left."""
    left = 1024 * kibibytes(meminfo, "MemAvailable")
    limit, used = number_in(cgroup / "memory.max"), number_in(cgroup / "memory.current")
    if limit is None or used is None:
        return left
    return min(left, limit - used + kibibytes(cgroup / "memory.stat", "inactive_file"))


def run_within_memory(words, seconds=None, least_left=LEAST_LEFT, env=None):
    """Its exit status, standard output and standard error; raises TimeoutExpired, and MemoryError where it was stopped."""
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    ended, took_too_much = threading.Event(), threading.Event()

    def watch():
        while not ended.wait(0.1):
            if bytes_left() < least_left:
                took_too_much.set()
                process.kill()
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    finally:
        ended.set()
        watcher.join()
    if took_too_much.is_set():
        raise MemoryError(f"the host had less than {least_left >> 30} GiB left")
    return process.returncode, out, err
