"""Says how near a step of ZeRO between ranks of one machine comes to forward and backward alone (markdown).

    python step_limits.py --program build/release/benchmarks/end_to_end_zero_step [--rounds 2] [--sockets]

Two ranks of one thread train a GPT of 26.3 million parameters. Each run times forward and backward of the model without an engine
first, then steps of the engine; the table has the minima of all rounds. Losses of all stages must agree within 1e-4 (fp32) and 1e-2 (bf16)
of stage 1's. --sockets repeats it with DEEPSPEED_SHARED_MEMORY=0, and the losses must be equal to the bit.
"""

import argparse
import json
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "tests" / "golden" / "deepspeed_training"))

from launch_ranks import launch_command  # noqa: E402

TOLERANCE = {"fp32": 1e-4, "bf16": 1e-2}


def run(options, stage, dtype, shared):
    os.environ["DEEPSPEED_SHARED_MEMORY"] = "1" if shared else "0"
    config = {"bf16": {"enabled": True}} if dtype == "bf16" else {}
    words = [
        options.program.resolve(),
        "--stage",
        stage,
        "--vocabulary",
        2048,
        "--alone",
        options.steps,
        "--steps",
        options.steps,
        "--config",
        json.dumps(config),
    ]
    lines = launch_command([str(word) for word in words], 2).splitlines()
    return json.loads([line for line in lines if line.startswith("{")][-1])


def verify(losses, base, tolerance, name):
    worst = max(abs(a - b) / abs(b) for mine, theirs in zip(losses, base) for a, b in zip(mine, theirs))
    if worst > tolerance:
        raise SystemExit(f"{name}: losses differ by {worst:.2e}, expected at most {tolerance}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--sockets", action="store_true")
    options = parser.parse_args()
    ways = [True, False] if options.sockets else [True]
    print("| stage | dtype | ranks meet in | forward and backward alone (ms) | step (ms) | step / alone |")
    print("|---|---|---|---|---|---|")
    for dtype, tolerance in TOLERANCE.items():
        first = None
        for stage in (1, 2, 3):
            runs = {way: [] for way in ways}
            for _ in range(options.rounds):
                for way in ways:
                    runs[way].append(run(options, stage, dtype, way))
            losses = runs[True][0]["losses"]
            first = first or losses
            verify(losses, first, tolerance, f"stage {stage}, {dtype}")
            for way in ways:
                for each in runs[way]:
                    verify(each["losses"], losses, 0, f"stage {stage}, {dtype}, another way")
                alone = min(min(each["alone_ms"]) for each in runs[way])
                step = min(min(each["step_ms"]) for each in runs[way])
                print(
                    f"| {stage} | {dtype} | {'shared memory' if way else 'sockets'} | {alone:.0f} | {step:.0f} | {step / alone:.3f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
