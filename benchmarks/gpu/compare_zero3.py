"""GPT-2 1.5B at ZeRO stage 3 and a GPT of 7B with the optimizer and the parameters in host memory: the engine against
DeepSpeed on one GPU. Checks that the losses of a small model agree from the same weights, then times, and prints one table
(markdown).

    python3 compare_zero3.py --program build/cuda/benchmarks/end_to_end_gpt2_throughput [--seconds 300] [--tiny]

Needs deepspeed 0.19.6 in the Python that runs it; without it the engine is timed alone, and the table says so. --tiny runs
sizes that a CPU takes, to try the script itself; its times mean nothing. Rows that would begin after --seconds are left out
and named.
"""

import argparse
import importlib.util
import json
import sys
import tempfile
import time

from compare import HERE, LOSS_TOLERANCE, SMALL, run

STAGE_3 = {"stage": 3}
OFFLOADED = {"stage": 3, "offload_optimizer": {"device": "cpu", "pin_memory": True},
             "offload_param": {"device": "cpu", "pin_memory": True}, "sub_group_size": 200_000_000}
GPT2_XL = dict(layers=48, heads=25, width=1600, micro_batch=16, steps=6, warmup=2)
GPT_7B = dict(layers=32, heads=32, width=4096, micro_batch=8, steps=4, warmup=2)
ROWS = [
    ("GPT-2 1.5B, stage 3", GPT2_XL, STAGE_3, 1.0),
    ("GPT 7B, offloaded, clipping", GPT_7B, OFFLOADED, 1.0),
    ("GPT 7B, offloaded, no clipping", GPT_7B, OFFLOADED, 0.0),
]
TINY = [(f"a tiny GPT, {name}", dict(SMALL, steps=3, warmup=1), zero, 1.0)
        for name, zero in [("stage 3", STAGE_3), ("offloaded", OFFLOADED)]]


def arguments(zero, clipping):
    return ["--zero", json.dumps(zero), "--clipping", str(clipping)]


def verify(program, peer, zero):
    """Aborts unless both train the same small model alike, from the same weights."""
    with tempfile.TemporaryDirectory() as folder:
        flags = [*arguments(zero, 1.0), "--weights", f"{folder}/weights.pt"]
        ours, theirs = run(program, SMALL, *flags), run(peer, SMALL, *flags)
    for name, result in (("the engine", ours), ("DeepSpeed", theirs)):
        if "error" in result:
            raise SystemExit(f"{name} failed on the small model: {result['error']}")
    worst = max(abs(a - b) / b for a, b in zip(ours["losses"], theirs["losses"], strict=True))
    if not (worst <= LOSS_TOLERANCE and ours["losses"][-1] < ours["losses"][0]):
        raise SystemExit(f"losses differ by {worst:.1e} relative, expected at most {LOSS_TOLERANCE:.0e}, or do not fall")
    print(f"{json.dumps(zero)}: losses of a small GPT agree within {worst:.1e} relative", flush=True)


def row_of(model, name, result, ours):
    if "error" in result:
        return f"| {model} | {name} | failed: {result['error']} | | | |"
    ratio = "" if result is ours or "error" in ours else f"{ours['tokens_per_s'] / result['tokens_per_s']:.2f}"
    return (f"| {model} | {name} | {result['tokens_per_s']:,.0f} | {ratio} | {result['peak_bytes'] / 1e9:.1f} "
            f"| {result['host_peak_bytes'] / 1e9:.1f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    program, peer = [options.program], [sys.executable, HERE / "deepspeed_peer.py"]
    has_peer = importlib.util.find_spec("deepspeed") is not None
    begin = time.monotonic()
    if has_peer:
        for zero in (STAGE_3, OFFLOADED):
            verify(program, peer, zero)
    rows, left_out = [], []
    for model, sizes, zero, clipping in TINY if options.tiny else ROWS:
        if time.monotonic() - begin > options.seconds:
            left_out.append(model)
            continue
        ours = run(program, sizes, *arguments(zero, clipping))
        rows.append(row_of(model, "deepspeed-cpp", ours, ours))
        if has_peer and time.monotonic() - begin <= options.seconds:
            rows.append(row_of(model, "DeepSpeed", run(peer, sizes, *arguments(zero, clipping)), ours))
        elif has_peer:
            left_out.append(f"{model}: DeepSpeed")
    print("\n| model | program | tokens/s | ours / it | peak GB, device | peak GB, host |\n|---|---|---|---|---|---|")
    print("\n".join(rows))
    for name in left_out:
        print(f"left out, the time was up: {name}")
    if not has_peer:
        print("DeepSpeed is not installed beside this Python: no comparison")


if __name__ == "__main__":
    main()
