"""GPT-2 124M and 1.5B: the engine, from C++ and from Python, against PyTorch eager, torch.compile and DeepSpeed, on one GPU.
Compares the losses of a small model from the same weights, then times, and prints one table (markdown), each row as it comes.

    python3 compare.py --program build/release/benchmarks/end_to_end_gpt2_throughput [--model 124M] [--rows engine eager ...]
                       [--package build/release/python] [--deepspeed FOLDER] [--seconds 300] [--state FILE]

--package is the folder of this project's Python package, --deepspeed that of DeepSpeed; rows of what is not named are left out.
--model tiny runs sizes that a CPU takes, to try the script itself; its times mean nothing. A row that is not done after
--seconds is stopped; those after it are named. Where the small model's losses differ, each row says UNVERIFIED.
--state keeps the comparison and the engine's figures for later calls with other rows.
"""

import argparse
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

from host_memory import run_within_memory

HERE = pathlib.Path(__file__).resolve().parent
SMALL = dict(layers=4, heads=4, width=256, context=128, vocabulary=1024, micro_batch=4, steps=15, warmup=0)
MODELS = {
    "124M": dict(layers=12, heads=12, width=768, micro_batch=64),
    "1.5B": dict(layers=48, heads=25, width=1600, micro_batch=16, steps=10, warmup=3),
    "tiny": dict(SMALL, steps=4, warmup=1),
}
PEERS = {
    "eager": ("PyTorch eager, autocast", []),
    "eager_bf16": ("PyTorch eager, bf16 weights", ["--bf16_weights"]),
    "compiled": ("torch.compile, autocast", ["--compile"]),
    "compiled_bf16": ("torch.compile, bf16 weights", ["--compile", "--bf16_weights"]),
}
LOSS_TOLERANCE = 1e-2  # bf16 products, summed in other orders, over 15 steps
LEAST_SECONDS = 5  # a row that has less is left out


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
    except (MemoryError, OSError) as error:
        return {"error": str(error)}
    sys.stderr.write(err)
    lines = [line for line in out.splitlines() if line.startswith("{")]
    if status != 0 or not lines:
        return {"error": f"status {status}: {reason_in(err)[:160]}"}
    return json.loads(lines[-1])


def reason_in(text):
    """Returns the line that says why a program ended: the last of Python's, the first of a C++ program's error."""
    lines = [line for line in text.splitlines() if line.strip() and not re.match(r"frame #|Exception raised from|\s", line)]
    return next((line for line in lines if "what():" in line), (lines or ["no reason is given"])[-1])


def disagreement(ours, theirs):
    """Returns why two runs of the small model do not train alike; empty where they do."""
    for name, result in (("the engine", ours), ("its peer", theirs)):
        if "error" in result:
            return f"{name} failed on the small model: {result['error']}"
    pairs = list(zip(ours["losses"], theirs["losses"], strict=True))
    if any(b == 0 or not math.isfinite(a - b) for a, b in pairs):
        return "losses of a small GPT are 0 or not finite"
    worst = max(abs(a - b) / abs(b) for a, b in pairs)
    if worst <= LOSS_TOLERANCE and ours["losses"][-1] < ours["losses"][0]:
        return ""
    return f"losses of a small GPT differ by {worst:.1e} relative, expected at most {LOSS_TOLERANCE:.0e}, or do not fall"


def compare_small(program, peer, own_flags=(), peer_flags=(), seconds=120):
    """Trains the small model by both from the same weights. Returns the results of both."""
    with tempfile.TemporaryDirectory() as folder:
        weights = ["--weights", f"{folder}/weights.pt"]
        ours = run(program, SMALL, *own_flags, *weights, seconds=seconds / 2)
        return ours, run(peer, SMALL, *peer_flags, *weights, seconds=seconds / 2)


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--model", choices=MODELS, default="124M")
    parser.add_argument("--rows", nargs="+", choices=["engine", "graphs", "python", *PEERS, "deepspeed"])
    parser.add_argument("--package", type=pathlib.Path)
    parser.add_argument("--deepspeed", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--state", type=pathlib.Path)
    return parser.parse_args()


def commands_of(options):
    """Returns the name, the command and the package of each row."""
    program, peer = [options.program], [sys.executable, HERE / "torch_peer.py"]
    scripted = [sys.executable, HERE / "deepspeed_peer.py"]
    rows = {
        "engine": ("deepspeed-cpp, bf16 with fp32 masters", program, None),
        "graphs": ("deepspeed-cpp, CUDA graphs", [*program, "--cuda_graphs"], None),
    }
    if options.package:
        rows["python"] = ("deepspeed-cpp, from Python", scripted, options.package)
    for key, (name, flags) in PEERS.items():
        rows[key] = (name, [*peer, *flags], None)
    if options.deepspeed:
        rows["deepspeed"] = ("DeepSpeed", scripted, options.deepspeed)
    if options.model == "tiny":
        del rows["graphs"]
    return {key: row for key, row in rows.items() if not options.rows or key in options.rows}


def main():
    options = read_options()
    end = time.monotonic() + options.seconds
    state = {"engine": {}}
    if options.state and options.state.exists():
        state = json.loads(options.state.read_text())
    if "differs" not in state:
        peer = [sys.executable, HERE / "torch_peer.py"]
        state["differs"] = disagreement(*compare_small([options.program], peer, seconds=min(120, options.seconds)))
        print(state["differs"] or "losses of a small GPT agree with PyTorch's from the same weights", flush=True)
    mark = " (UNVERIFIED)" if state["differs"] else ""
    left_out = []
    print("\n| model | program | tokens/s | ours / it | peak GB |\n|---|---|---|---|---|", flush=True)
    for key, (name, command, package) in commands_of(options).items():
        seconds = end - time.monotonic()
        if seconds < LEAST_SECONDS:
            left_out.append(name)
            continue
        result = run(command, MODELS[options.model], seconds=seconds, package=package)
        if "error" in result:
            print(f"| {options.model} | {name} | failed: {result['error']} | | |", flush=True)
            continue
        if key == "engine":
            state["engine"][options.model] = result["tokens_per_s"]
        ours = state["engine"].get(options.model)
        ratio = f"{ours / result['tokens_per_s']:.2f}" if ours else ""
        print(
            f"| {options.model} | {name}{mark} | {result['tokens_per_s']:,.0f} | {ratio} | {result['peak_bytes'] / 1e9:.1f} |", flush=True
        )
        if options.state:
            options.state.write_text(json.dumps(state))
    if options.state:
        options.state.write_text(json.dumps(state))
    for name in left_out:
        print(f"left out, the time was up: {options.model}: {name}")


if __name__ == "__main__":
    main()
