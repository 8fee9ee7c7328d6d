"""zero_to_fp32 beside DeepSpeed's: seconds, peak of anonymous memory and the disk's own rate, on a checkpoint of any size.

    python zero_to_fp32.py --bin build/release [--parameters 1000000000] [--folder DIR]

Run it with a Python that has deepspeed installed for the comparison; without it only ours is measured. Both write one
file; the results are compared byte by byte, tensor for tensor, before any time is printed.
"""

import argparse
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

THEIRS = ("import sys; from deepspeed.utils.zero_to_fp32 import convert_zero_checkpoint_to_fp32_state_dict as convert; "
          "convert(sys.argv[1], sys.argv[2], max_shard_size='1000GB')")


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


def disk_seconds(folder, bytes_read, bytes_written, source):
    """The same bytes read and written in sequence by dd, past the page cache."""
    target = folder / "dd.bin"
    begin = time.monotonic()
    subprocess.check_call(["dd", f"if={source}", "of=/dev/null", "bs=4M", "iflag=direct",
                           f"count={bytes_read // (4 << 20)}"],
                          stderr=subprocess.DEVNULL)
    subprocess.check_call(["dd", "if=/dev/zero", f"of={target}", "bs=4M", "oflag=direct",
                           f"count={bytes_written // (4 << 20)}", "conv=fsync"], stderr=subprocess.DEVNULL)
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
    parser.add_argument("--folder", help="where to work; needs 12 bytes a parameter")
    options = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(dir=options.folder))
    try:
        checkpoint, ours, theirs = folder / "checkpoint", folder / "ours.bin", folder / "theirs"
        made = subprocess.check_output([options.bin / "benchmarks/checkpoint_make_checkpoint", checkpoint,
                                        "--parameters", str(options.parameters)], text=True)
        numel, largest = map(int, re.findall(r"\d+", made)[:2])
        rows = [("deepspeed-cpp", *measure([options.bin / "bin/zero_to_fp32", checkpoint, ours]))]
        if importlib.util.find_spec("deepspeed"):
            rows.append(("DeepSpeed", *measure([sys.executable, "-c", THEIRS, checkpoint, theirs])))
            if not same(ours, theirs / "pytorch_model.bin"):
                raise SystemExit("the two files differ: nothing is reported")
            print("both wrote the same tensors")
        shutil.rmtree(theirs, ignore_errors=True)
        source = next(checkpoint.glob("*/bf16_zero_pp_rank_0_*"))
        disk = disk_seconds(folder, source.stat().st_size, source.stat().st_size, source) * 4 * numel / source.stat().st_size
        print(f"\n{numel / 1e9:.2f}e9 parameters, largest weight {largest / 2**20:.0f} MiB; page cache dropped before each")
        print("| program | seconds | ours / it | peak anonymous MiB |\n|---|---|---|---|")
        for name, seconds, peak in rows:
            print(f"| {name} | {seconds:.1f} | {rows[0][1] / seconds:.2f} | {peak / 2**20:.0f} |")
        print(f"| dd, the same bytes in and out | {disk:.1f} | {rows[0][1] / disk:.2f} | |")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
