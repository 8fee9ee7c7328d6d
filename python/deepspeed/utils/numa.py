"""Binds a rank to cores."""

from __future__ import annotations

import os
import shutil
import subprocess


def parse_range(rng: str) -> range:
    """Returns the numbers of "3" or "2-5"."""
    first, dash, last = rng.partition("-")
    try:
        begin, end = int(first), int(last) if dash else int(first)
    except ValueError:
        raise ValueError(f"Bad range: {rng!r}, expected a number or two numbers with a dash between them") from None
    if begin > end:
        raise ValueError(f"Bad range: {rng!r}, its end must not be smaller than its begin")
    return range(begin, end + 1)


def parse_range_list(range_str: str) -> list[int]:
    """Returns the numbers of "0-3,8,10-11", which must ascend."""
    numbers: list[int] = []
    for part in range_str.split(","):
        values = parse_range(part)
        if numbers and values[0] <= numbers[-1]:
            raise ValueError(f"Bad range: {range_str!r}, its parts must ascend and not overlap")
        numbers.extend(values)
    return numbers


def get_numa_cores() -> list[list[int]]:
    """Returns the cores of each NUMA node, as numactl lists them; [] without numactl."""
    if shutil.which("numactl") is None:
        return []
    lines = subprocess.run(["numactl", "--hardware"], capture_output=True, text=True).stdout.splitlines()
    return [[int(core) for core in line.split("cpus:")[1].split()] for line in lines if line.startswith("node") and "cpus:" in line]


def get_numactl_cmd(bind_core_list: str | None, num_local_procs: int, local_rank: int) -> tuple[int, list[str]]:
    """Returns (cores of a rank, words of a numactl command) for its share of the cores. Memory comes from the cores' node."""
    if "KMP_AFFINITY" in os.environ:
        raise ValueError("KMP_AFFINITY conflicts with numactl: unset it (unset KMP_AFFINITY) before the launch")
    cores = parse_range_list(bind_core_list) if bind_core_list is not None else sorted(os.sched_getaffinity(0))
    share = len(cores) // num_local_procs
    assert share >= 1, f"{num_local_procs} processes need a core each, and there are {len(cores)}"
    own = cores[share * local_rank : share * (local_rank + 1)]
    command = ["numactl"]
    for node, held in enumerate(get_numa_cores()):
        if set(own) <= set(held):
            command += ["-m", str(node)]
            break
    return share, command + ["-C", ",".join(map(str, own))]
