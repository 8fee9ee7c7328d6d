"""ZeRO stage 3 and offloading on one GPU: the engine against DeepSpeed. Checks that the losses of a small model agree from
the same weights, then times, and prints one table (markdown), each row as it comes, and last what bounds each offloaded one.

    python3 compare_zero3.py --folder build/release/benchmarks [--rows models|smaller|largest|tiny] [--seconds 300]

models: GPT-2 1.5B at stage 3, and a GPT of 7B with the optimizer and the parameters in host memory, beside DeepSpeed.
smaller: the same with 4B. By its source DeepSpeed takes 20 bytes of host memory a parameter there (of 16 bits the weight and
the gradient, of 32 the gradient once more, master and moments), the page-locked ones rounded up to powers of two, for which
128 GiB may be too few at 7B; a program that leaves too little of the host's memory is stopped, and the table says so.
largest: the largest models that train on a GPU of 139 GiB with 128 GiB of host memory, by the engine alone. tiny: sizes that
a CPU takes, to try the script itself; its times mean nothing.

Needs deepspeed 0.19.6 in the Python that runs it; without it, or where it fails on the small model, the engine is timed
alone, which is said. Where the small model's losses differ, the row says UNVERIFIED. What is not done after --seconds is
stopped; rows after it are left out and named.
"""

import argparse
import importlib.util
import json
import pathlib
import sys
import time
from dataclasses import dataclass, field

from compare import HERE, LEAST_SECONDS, SMALL, compare_small, disagreement, run


@dataclass
class Row:
    name: str
    sizes: dict
    zero: dict
    clipping: float = 1.0
    bf16: dict = field(default_factory=lambda: {"enabled": True})
    has_peer: bool = True
    own: dict = field(default_factory=dict)  # of offload_optimizer, in the engine's config alone

    def flags(self, own=None):
        zero = dict(self.zero)
        if own:
            zero["offload_optimizer"] = {**zero["offload_optimizer"], **own}
        return ["--zero", json.dumps(zero), "--clipping", str(self.clipping), "--bf16", json.dumps(self.bf16)]

    def own_flags(self):
        return self.flags(self.own) + ([] if self.has_peer else ["--partitioned"])


def offloaded(sub_group_size=200_000_000, **optimizer):
    return {
        "stage": 3,
        "offload_optimizer": {"device": "cpu", "pin_memory": True, **optimizer},
        "sub_group_size": sub_group_size,
        "reduce_bucket_size": 200_000_000,
    }


STAGE_3 = {"stage": 3}
BOTH_OFFLOADED = {**offloaded(), "offload_param": {"device": "cpu", "pin_memory": True}}
GPT_4B = dict(layers=20, heads=32, width=4096, micro_batch=8, steps=4, warmup=2)
GPT_7B = dict(GPT_4B, layers=32)
UNCHECKED = {"enabled": True, "check_grad_overflow": False}  # else new weights wait for the last gradient
AHEAD = {"super_offload": True}  # the host steps beside backward
EXACT_MASTERS = {"enabled": True, "split_master_weights": True}
SIXTEEN_BIT_STATES = {"enabled": True, "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}
TINY = dict(SMALL, steps=3, warmup=1)
ROWS = {
    "models": [
        Row("GPT-2 1.5B, stage 3", dict(layers=48, heads=25, width=1600, micro_batch=16, steps=6, warmup=2), STAGE_3),
        Row("GPT 7B, offloaded, no clipping", GPT_7B, BOTH_OFFLOADED, 0.0, UNCHECKED, own=AHEAD),
        Row("GPT 7B, offloaded, clipping", GPT_7B, BOTH_OFFLOADED, 1.0),
    ],
    "smaller": [
        Row("GPT 4B, offloaded, no clipping", GPT_4B, BOTH_OFFLOADED, 0.0, UNCHECKED, own=AHEAD),
        Row("GPT 4B, offloaded, clipping", GPT_4B, BOTH_OFFLOADED, 1.0),
    ],
    # Bytes a parameter: 14 (weight, low half of the master, gradient, moments), of which 10 in host memory for the
    # part `ratio`; and 8 (weight, gradient, moments of 16 bits), of which 4.
    "largest": [
        Row(
            "GPT 17B, exact fp32 masters",
            dict(layers=42, heads=45, width=5760, micro_batch=1, steps=2, warmup=1),
            offloaded(ratio=0.68),
            bf16=EXACT_MASTERS,
            has_peer=False,
        ),
        Row(
            "GPT 30B, 16-bit states",
            dict(layers=48, heads=56, width=7168, context=512, micro_batch=1, steps=2, warmup=1),
            offloaded(ratio=0.92),
            bf16=SIXTEEN_BIT_STATES,
            has_peer=False,
        ),
    ],
    "tiny": [
        Row("a tiny GPT, stage 3", TINY, STAGE_3),
        Row("a tiny GPT, offloaded", TINY, {**BOTH_OFFLOADED, "sub_group_size": 500_000}, 0.0, UNCHECKED, own=AHEAD),
        Row("a tiny GPT, exact fp32 masters", TINY, offloaded(500_000, ratio=0.5), bf16=EXACT_MASTERS, has_peer=False),
        Row("a tiny GPT, 16-bit states", TINY, offloaded(500_000, ratio=0.5), bf16=SIXTEEN_BIT_STATES, has_peer=False),
    ],
}


def line_of(model, name, result, ours):
    if "error" in result:
        return f"| {model} | {name} | failed: {result['error']} | | | | |"
    ratio = "" if result is ours or "error" in ours else f"{ours['tokens_per_s'] / result['tokens_per_s']:.2f}"
    estimate = f"{result['estimated_bytes'] / 1e9:.1f}" if "estimated_bytes" in result else ""
    return (
        f"| {model} | {name} | {result['tokens_per_s']:,.0f} | {ratio} | {result['peak_bytes'] / 1e9:.1f} "
        f"| {result['host_peak_bytes'] / 1e9:.1f} | {estimate} |"
    )


def bound_of(row, result, limits):
    """The offloaded step against what its parts take, each measured by itself: forward and backward within it, Adam on
    the host, the copies of gradients and of weights."""
    if "offload_optimizer" not in row.zero or "error" in result or "error" in limits:
        return None
    elements = result["parameters"] * row.zero["offload_optimizer"].get("ratio", 1.0)
    compute = (result["step_ms"] - result["optimizer_ms"]) / 1e3
    adam = elements / limits["adam_elements_per_s"]
    back, out = 2 * elements / limits["bytes_from_host_per_s"], 2 * elements / limits["bytes_to_host_per_s"]
    bound, target = (compute + max(adam, back), 1.15) if row.clipping else (max(compute, back + out, adam), 1.25)
    return (
        f"{row.name}: step {result['step_ms'] / 1e3:.2f} s = {result['step_ms'] / 1e3 / bound:.2f} of its bound (target "
        f"{target}): forward and backward {compute:.2f}, Adam {adam:.2f}, gradients out {out:.2f}, weights back {back:.2f}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path, required=True, help="of the built benchmarks")
    parser.add_argument("--rows", choices=ROWS, default="models")
    parser.add_argument("--seconds", type=float, default=300)
    options = parser.parse_args()
    program, peer = [options.folder / "end_to_end_gpt2_throughput"], [sys.executable, HERE / "deepspeed_peer.py"]
    has_peer = importlib.util.find_spec("deepspeed") is not None
    end = time.monotonic() + options.seconds

    def left():
        return end - time.monotonic()

    limits = run([options.folder / "offload_host_step_limits"], {"elements": 1 << 22} if options.rows == "tiny" else {}, seconds=left())
    if "error" in limits:
        print(f"offload_host_step_limits failed, no bounds are told: {limits['error']}", flush=True)
    bounds, left_out = [], []
    print(
        "\n| model | program | tokens/s | ours / it | peak GB, device | peak GB, host | states GB, estimated |"
        "\n|---|---|---|---|---|---|---|",
        flush=True,
    )
    for row in ROWS[options.rows]:
        if left() < LEAST_SECONDS:
            left_out.append(row.name)
            continue
        ours = run(program, row.sizes, *row.own_flags(), seconds=left())
        print(line_of(row.name, "deepspeed-cpp", ours, ours), flush=True)
        bounds.append(bound_of(row, ours, limits))
        if not has_peer or not row.has_peer:
            continue
        name = "DeepSpeed"
        if left() > LEAST_SECONDS:  # DeepSpeed's first run compiles its kernels
            small = compare_small(program, peer, row.own_flags(), row.flags(), seconds=min(180, left()))
            differs = disagreement(*small)
            has_peer = "error" not in small[1]
            if differs:
                print(f"{row.name}: {differs}", flush=True)
                name += " (UNVERIFIED)"
        if has_peer and left() > LEAST_SECONDS:
            print(line_of(row.name, name, run(peer, row.sizes, *row.flags(), seconds=left()), ours), flush=True)
        elif has_peer:
            left_out.append(f"{row.name}: DeepSpeed")
    print("\n".join(["", *filter(None, bounds)]))
    for name in left_out:
        print(f"left out, the time was up: {name}")
    if not has_peer:
        print("DeepSpeed is not installed beside this Python, or failed: no comparison")


if __name__ == "__main__":
    main()
