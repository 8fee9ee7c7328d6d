"""GPT-2 124M and 1.5B: the engine, from C++ and from Python, against PyTorch eager, torch.compile and DeepSpeed, on one GPU.
Checks that the losses of a small model agree from the same weights, then times, and prints one table (markdown), each row
as it comes.

    python3 compare.py --program build/release/benchmarks/end_to_end_gpt2_throughput [--package build/release/python]
                       [--deepspeed FOLDER] [--seconds 300] [--tiny]

--package is the folder of this project's Python package, --deepspeed that of DeepSpeed; rows of what is not named are left out.
--tiny runs sizes that a CPU takes, to try the script itself; its times mean nothing. Rows that would begin after
--seconds are left out and named; one that is not done a minute later is stopped.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from host_memory import run_within_memory

HERE = pathlib.Path(__file__).resolve().parent
SMALL = dict(layers=4, heads=4, width=256, context=128, vocabulary=1024, micro_batch=4, steps=15, warmup=0)
MODELS = {
    "GPT-2 124M": dict(layers=12, heads=12, width=768, micro_batch=64),
    "GPT-2 1.5B": dict(layers=48, heads=25, width=1600, micro_batch=16, steps=10, warmup=3),
}
TINY = {"a tiny GPT": dict(SMALL, steps=4, warmup=1)}
PEERS = {
    "PyTorch eager, autocast": [],
    "PyTorch eager, bf16 weights": ["--bf16_weights"],
    "torch.compile, autocast": ["--compile"],
    "torch.compile, bf16 weights": ["--compile", "--bf16_weights"],
}
LOSS_TOLERANCE = 1e-2  # bf16 products, summed in other orders, over 15 steps


def run(command, sizes, *more, seconds=None, package=None):
    """Returns what the command prints as JSON. `package`: a folder from which its Python imports."""
    words = [*map(str, command), *(word for name, value in sizes.items() for word in (f"--{name}", str(value))), *more]
    env = None
    if package is not None:
        others = os.environ.get("PYTHONPATH")
        env = dict(os.environ, PYTHONPATH=f"{package}:{others}" if others else str(package))
    try:
        status, out, err = run_within_memory(words, seconds, env=env)
    except subprocess.TimeoutExpired:
        return {"error": f"not done after {seconds:.0f} s"}
    except MemoryError as error:
        return {"error": str(error)}
    lines = [line for line in out.splitlines() if line.startswith("{")]
    if status != 0 or not lines:
        return {"error": (err.strip().splitlines() or ["no output"])[-1][:160]}
    return json.loads(lines[-1])


def verify(program, peer):
    """Aborts unless the engine and PyTorch train the same small model alike, from the same weights."""
    with tempfile.TemporaryDirectory() as folder:
        weights = f"{folder}/weights.pt"
        ours = run(program, SMALL, "--weights", weights, seconds=60)
        theirs = run(peer, SMALL, "--weights", weights, seconds=60)
    for name, result in (("the engine", ours), ("PyTorch", theirs)):
        if "error" in result:
            raise SystemExit(f"{name} failed on the small model: {result['error']}")
    worst = max(abs(a - b) / b for a, b in zip(ours["losses"], theirs["losses"], strict=True))
    if not (worst <= LOSS_TOLERANCE and ours["losses"][-1] < ours["losses"][0]):
        raise SystemExit(f"losses differ by {worst:.1e} relative, expected at most {LOSS_TOLERANCE:.0e}, or do not fall")
    print(f"losses of a small GPT agree within {worst:.1e} relative over {SMALL['steps']} steps", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--package", type=pathlib.Path)
    parser.add_argument("--deepspeed", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    program, peer = [options.program], [sys.executable, HERE / "torch_peer.py"]
    scripted = [sys.executable, HERE / "deepspeed_peer.py"]
    end = time.monotonic() + options.seconds
    verify(program, peer)

    runs = {"deepspeed-cpp, bf16 with fp32 masters": (program, None)}
    if not options.tiny:
        runs["deepspeed-cpp, CUDA graphs"] = ([*program, "--cuda_graphs"], None)
    if options.package:
        runs["deepspeed-cpp, from Python"] = (scripted, options.package)
    for name, flags in PEERS.items():
        runs[name] = ([*peer, *flags], None)
    if options.deepspeed:
        runs["DeepSpeed"] = (scripted, options.deepspeed)
    left_out = []
    print("\n| model | program | tokens/s | ours / it | peak GB |\n|---|---|---|---|---|", flush=True)
    for model, sizes in (TINY if options.tiny else MODELS).items():
        ours = None
        for name, (command, package) in runs.items():
            if ours is not None and time.monotonic() > end:
                left_out.append(f"{model}: {name}")
                continue
            result = run(command, sizes, seconds=max(0, end - time.monotonic()) + 60, package=package)
            ours = ours or result
            if "error" in result:
                print(f"| {model} | {name} | failed: {result['error']} | | |", flush=True)
                continue
            ratio = ours["tokens_per_s"] / result["tokens_per_s"] if "error" not in ours else float("nan")
            print(f"| {model} | {name} | {result['tokens_per_s']:,.0f} | {ratio:.2f} | {result['peak_bytes'] / 1e9:.1f} |", flush=True)
    for name in left_out:
        print(f"left out, the time was up: {name}")


if __name__ == "__main__":
    main()
