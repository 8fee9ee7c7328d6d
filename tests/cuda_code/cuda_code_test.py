#!/usr/bin/env python3
"""Holds what nvcc makes of the CUDA kernels, for sm_90:

    cuda_code_test.py PTXAS FILE.ptx...

Kernels of packs load and store 16 bytes at once, never elements of 16 bits, and no kernel spills registers.
"""

import collections
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

# A kernel's name, the stored type and how many elements a thread takes at once, from the mangled name.
PACKED = re.compile(r"\d(?P<name>[a-z][a-z_]*_kernel)I(?P<type>13__nv_bfloat16|6__half|f)Li(?P<width>[48])E")
ENTRY = re.compile(r"^\.visible \.entry (\w+)\(|^\.weak \.entry (\w+)\(|^\.entry (\w+)\(", re.MULTILINE)
ACCESS = re.compile(r"\b(ld|st)\.(?:volatile\.|weak\.)?global(?:\.[a-z]+)*?(\.v[24])?\.[usfb](8|16|32|64|128)\b")

# A row's own numbers, which a thread reads beside the packs: the logit of the target.
NARROW_LOADS = {"cross_entropy_kernel": 1}
STORE_NO_PACKS = {"embedding_gradient_kernel"}  # it adds by atomics
# Kernels that must be there in bf16 and fp16: without, the expression above would have lost them.
LEAST_PACKED_KERNELS = 40


def accesses_of(body):
    """Counts the loads and stores of global memory, by their direction and bytes."""
    counts = collections.Counter()
    for direction, vector, bits in ACCESS.findall(body):
        counts[direction, int(bits) // 8 * (int(vector[2:]) if vector else 1)] += 1
    return counts


def faults_of_packs(text):
    """Returns how many kernels of packs a file has, and what is wrong with them."""
    starts = list(ENTRY.finditer(text))
    found, faults = 0, []
    for start, after in zip(starts, [*(match.start() for match in starts[1:]), len(text)], strict=True):
        name = next(filter(None, start.groups()))
        packed = PACKED.search(name)
        if packed is None:
            continue
        found += 1
        counts = accesses_of(text[start.start() : after])
        kernel = packed["name"]
        said = f"{kernel}, {packed['width']} of {packed['type'].lstrip('0123456789')} at once"
        narrow = {way: sum(counts[way, size] for size in (1, 2)) for way in ("ld", "st")}
        if narrow["ld"] > NARROW_LOADS.get(kernel, 0) or narrow["st"] > 0:
            faults.append(f"{said}: {narrow['ld']} loads and {narrow['st']} stores of two bytes or one ({name})")
        if counts["ld", 16] == 0 or (counts["st", 16] == 0 and kernel not in STORE_NO_PACKS):
            faults.append(f"{said}: {counts['ld', 16]} loads and {counts['st', 16]} stores of 16 bytes ({name})")
    return found, faults


def spills_of(ptxas, file):
    """Returns the kernels of a file that spill registers."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as cubin:
        done = subprocess.run([ptxas, "-v", "-arch=sm_90", file, "-o", cubin.name], capture_output=True, text=True)
    if done.returncode:
        return [f"{file}: {done.stderr[:500]}"]
    report = re.findall(r"Function properties for (\w+)\s+\d+ bytes stack frame, (\d+) bytes spill stores, (\d+)", done.stderr)
    if not report:
        return [f"{file}: ptxas -v says nothing of spills: {done.stderr[:500]}"]
    return [f"{name} spills: {stores} bytes stored, {loads} loaded" for name, stores, loads in report if int(stores) + int(loads)]


def main():
    ptxas, files = sys.argv[1], sys.argv[2:]
    found, faults = 0, []
    for file in files:
        packed, wrong = faults_of_packs(pathlib.Path(file).read_text())
        found += packed
        faults += wrong
    if found < LEAST_PACKED_KERNELS:
        faults.append(f"{found} kernels of packs were found, at least {LEAST_PACKED_KERNELS} expected: are they named otherwise?")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for spills in pool.map(lambda file: spills_of(ptxas, file), files):
            faults += spills
    print("\n".join(faults))
    print(f"{found} kernels of packs in {len(files)} files: {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
