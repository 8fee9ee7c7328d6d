"""zero_to_fp32 beside DeepSpeed's: seconds, peak of anonymous memory and the disk's own rate, on a checkpoint of any size.

    python zero_to_fp32.py --bin build/release [--parameters 1000000000] [--rounds 3] [--folder DIR]

Run it with a Python that has deepspeed installed for the comparison; without it only ours is measured. Both write one
file; the results are compared byte by byte, tensor for tensor, before any time is printed. The rate of a virtual disk changes
from minute to minute, so the programs take turns, and medians are printed.
"""

import argparse
import importlib.util
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

THEIRS = (
    "import sys; from deepspeed.utils.zero_to_fp32 import convert_zero_checkpoint_to_fp32_state_dict as convert; "
    "convert(sys.argv[1], sys.argv[2], max_shard_size='1000GB')"
)


def anonymous_bytes(pid):
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"RssAnon:\s+(\d+) kB", status)
    return int(found.group(1)) * 1024 if found else 0


def measure(command):
    os.sync()
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
    begin = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    peak = 0
    while process.poll() is None:
        peak = max(peak, anonymous_bytes(process.pid))
        time.sleep(0.01)
    if process.returncode != 0:
        raise SystemExit(f"{command[0]} failed: {process.stderr.read().strip()[-500:]}")
    os.sync()
    return time.monotonic() - begin, peak


def disk_seconds(folder, sources):
    """Their bytes read in sequence by dd, past the page cache, and as many written."""
    target = folder / "dd.bin"
    blocks = 0
    begin = time.monotonic()
    for source in sources:
        subprocess.check_call(["dd", f"if={source}", "of=/dev/null", "bs=4M", "iflag=direct"], stderr=subprocess.DEVNULL)
        blocks += source.stat().st_size // (4 << 20)
    subprocess.check_call(
        ["dd", "if=/dev/zero", f"of={target}", "bs=4M", "oflag=direct", f"count={blocks}", "conv=fsync"], stderr=subprocess.DEVNULL
    )
    seconds = time.monotonic() - begin
    target.unlink()
    return seconds


def same(ours, theirs):
    import torch

    a, b = (torch.load(file, weights_only=True, mmap=True) for file in (ours, theirs))
    return list(a) == list(b) and all(torch.equal(a[name], b[name]) for name in a)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="the build folder")
    parser.add_argument("--parameters", type=int, default=1_000_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", help="where to work; needs 12 bytes a parameter")
    options = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(dir=options.folder))
    try:
        checkpoint, ours, theirs = folder / "checkpoint", folder / "ours.bin", folder / "theirs"
        made = subprocess.check_output(
            [options.bin / "benchmarks/checkpoint_make_checkpoint", checkpoint, "--parameters", str(options.parameters)], text=True
        )
        numel, largest = map(int, re.findall(r"\d+", made)[:2])
        # Of the 16-bit checkpoint: what holds the fp32 weights, and nothing else.
        sources = sorted(checkpoint.glob("*/bf16_zero_pp_rank_*"))
        commands = {"deepspeed-cpp": [options.bin / "bin/zero_to_fp32", checkpoint, ours]}
        if importlib.util.find_spec("deepspeed"):
            commands["DeepSpeed"] = [sys.executable, "-c", THEIRS, checkpoint, theirs]
        seconds = {name: [] for name in [*commands, "dd, the same bytes in and then out"]}
        peaks = dict.fromkeys(commands, 0)
        for _ in range(options.rounds):
            seconds["dd, the same bytes in and then out"].append(disk_seconds(folder, sources))
            for name, command in commands.items():
                taken, peak = measure(command)
                seconds[name].append(taken)
                peaks[name] = max(peaks[name], peak)
            if "DeepSpeed" in commands and not same(ours, theirs / "pytorch_model.bin"):
                raise SystemExit("the two files differ: nothing is reported")
            shutil.rmtree(theirs, ignore_errors=True)
            ours.unlink()
        if "DeepSpeed" in commands:
            print("both wrote the same tensors")
        print(
            f"\n{numel / 1e9:.2f}e9 parameters, largest weight {largest / 2**20:.0f} MiB; page cache dropped before each; "
            f"medians of {options.rounds}"
        )
        print("| program | seconds | all | its / ours | peak anonymous MiB |\n|---|---|---|---|---|")
        median = {name: statistics.median(values) for name, values in seconds.items()}
        for name, values in seconds.items():
            every = " ".join(f"{value:.1f}" for value in values)
            peak = f"{peaks[name] / 2**20:.0f}" if name in peaks else ""
            print(f"| {name} | {median[name]:.1f} | {every} | {median[name] / median['deepspeed-cpp']:.2f} | {peak} |")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
