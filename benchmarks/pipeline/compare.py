"""Compares a pipeline of two stages with DeepSpeed's, and measures the bubble of each schedule (markdown).

    VENV/bin/python compare.py --program build/release/benchmarks/pipeline_train_batch [--package build/release/python]
                               [--rounds 3] [--bubbles]

The Python that runs this file must have torch 2.11.0 and deepspeed 0.19.6. Losses must agree within 1e-4 before anything is
timed. Sides take turns (A B C A B C); the table has medians of the rounds. What else is given goes to all sides: `--rows 32` makes
micro batches smaller, `--layers`, `--width`, `--micro_batches` and `--steps` say the rest.
"""

import argparse
import functools
import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "tests" / "golden" / "deepspeed_training"))

from launch_ranks import launch_command  # noqa: E402

LOSS_TOLERANCE = 1e-4
SCHEDULES = [("1f1b", 1), ("interleaved", 2), ("zero_bubble", 1)]


def last_json_line(output):
    lines = [line for line in output.splitlines() if line.startswith("{")]
    if not lines:
        raise SystemExit(f"a run printed no result:\n{output}")
    return json.loads(lines[-1])


def run_program(program, arguments):
    return last_json_line(launch_command([program.resolve(), *arguments], 2))


def run_script(arguments, package=None):
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc_per_node",
        "2",
        "--master_port",
        "29611",
        HERE / "peer.py",
        *arguments,
    ]
    environment = dict(os.environ, DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1", **({"PYTHONPATH": str(package.resolve())} if package else {}))
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return last_json_line(done.stdout)


def verify(name, run, peer):
    worst = max(abs(a - b) / abs(b) for a, b in zip(run["losses"], peer["losses"]))
    if worst > LOSS_TOLERANCE:
        raise SystemExit(f"{name}: losses differ from DeepSpeed's by {worst:.2e}")
    return worst


def compare(options, arguments):
    sides = {"DeepSpeed": lambda: run_script(arguments)}
    if options.package:
        sides["deepspeed-cpp, Python"] = lambda: run_script(arguments, options.package)
    for schedule in ("1f1b", "zero_bubble"):
        sides[f"deepspeed-cpp, C++, {schedule}"] = functools.partial(run_program, options.program, [*arguments, "--schedule", schedule])
    runs = {name: [] for name in sides}
    for _ in range(options.rounds):
        for name, run in sides.items():
            runs[name].append(run())
            worst = verify(name, runs[name][-1], runs["DeepSpeed"][-1])
            print(f"{name}: {runs[name][-1]['step_ms']:.1f} ms, losses within {worst:.1e}", file=sys.stderr)
    peer = runs["DeepSpeed"]
    print("| side | step, ms | DeepSpeed's step / this | peak MB of a rank | this / DeepSpeed's |\n|---|---|---|---|---|")
    for name, of_side in runs.items():
        speed = statistics.median(b["step_ms"] / a["step_ms"] for a, b in zip(of_side, peer))
        memory = statistics.median(a["peak_mb"] / b["peak_mb"] for a, b in zip(of_side, peer))
        step = statistics.median(run["step_ms"] for run in of_side)
        peak = statistics.median(run["peak_mb"] for run in of_side)
        print(f"| {name} | {step:.1f} | {speed:.2f} | {peak:.0f} | {memory:.2f} |")


def measure_bubbles(options, arguments):
    print("| schedule | bubble | by formula with measured passes | batch / batch by formula |\n|---|---|---|---|")
    for schedule, chunks in SCHEDULES:
        runs = [
            run_program(options.program, [*arguments, "--bubble", "--schedule", schedule, "--model_chunks", chunks])
            for _ in range(options.rounds)
        ]
        middle = sorted(runs, key=lambda run: run["batch_against_formula"])[len(runs) // 2]
        print(f"| {schedule} | {middle['bubble']:.3f} | {middle['bubble_by_formula']:.3f} | {middle['batch_against_formula']:.3f} |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--package", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bubbles", action="store_true")
    options, rest = parser.parse_known_args()
    measure_bubbles(options, rest) if options.bubbles else compare(options, rest)


if __name__ == "__main__":
    main()
