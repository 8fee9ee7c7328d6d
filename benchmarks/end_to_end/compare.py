"""Runs deepspeed_peer.py and this project's end_to_end_zero_step alternately (A B A B) on the same model and data,
checks that their losses agree, and prints one table of ratios a stage (markdown).

    VENV/bin/python compare.py --program build/release/benchmarks/end_to_end_zero_step [--stages 1 2] [--rounds 3]

The Python that runs this file must have torch 2.11.0 and deepspeed 0.19.6. An unmeasured first run of the peer lets
DeepSpeed compile its kernels.
"""

import argparse
import json
import pathlib
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "tests" / "golden" / "deepspeed_training"))

from launch_ranks import launch_command  # noqa: E402

LOSS_TOLERANCE = 1e-4


def last_json_line(output):
    lines = [line for line in output.splitlines() if line.startswith("{")]
    if not lines:
        raise SystemExit(f"a run printed no result:\n{output}")
    return json.loads(lines[-1])


def run_ours(program, arguments, world_size):
    return last_json_line(launch_command([program, *arguments], world_size))


def run_peer(arguments, world_size):
    import subprocess

    command = [sys.executable, HERE / "deepspeed_peer.py", "--world_size", world_size, *arguments]
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, check=True)
    return last_json_line(done.stdout)


def verify(ours, peer):
    """Aborts unless both trained the same model the same way."""
    if ours["parameters"] != peer["parameters"] or len(ours["losses"]) != len(peer["losses"]):
        raise SystemExit("the two programs ran different models or numbers of steps")
    worst = max(abs(a - b) / abs(b) for row, other in zip(ours["losses"], peer["losses"]) for a, b in zip(row, other))
    if not worst <= LOSS_TOLERANCE:
        raise SystemExit(f"losses differ by {worst:.2e} relative, expected at most {LOSS_TOLERANCE:.0e}")
    return worst


def summary(runs):
    """Best round's median step (the least disturbed), the median of all steps, start-up and memory."""
    return {
        "step, best round's median (ms)": min(statistics.median(run["step_ms"]) for run in runs),
        "step, median of all (ms)": statistics.median([t for run in runs for t in run["step_ms"]]),
        "start to ready engine, best (s)": min(run["ready_seconds"] for run in runs),
        "start to ready engine, median (s)": statistics.median(run["ready_seconds"] for run in runs),
        "peak memory per rank, worst (MB)": max(max(run["peak_rss_mb"]) for run in runs),
    }


def print_table(stage, ours, peer, worst_loss):
    print(f"\n### Stage {stage}: {ours[0]['parameters']:,} parameters, {ours[0]['world_size']} ranks, "
          f"{len(ours)} rounds of {len(ours[0]['step_ms'])} steps; losses agree to {worst_loss:.1e}\n")
    print("| | DeepSpeed | deepspeed-cpp | DeepSpeed / deepspeed-cpp |\n|---|---|---|---|")
    left, right = summary(peer), summary(ours)
    for name in left:
        print(f"| {name} | {left[name]:.4g} | {right[name]:.4g} | {left[name] / right[name]:.2f} |")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--stages", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--world_size", type=int, default=2)
    parser.add_argument("--save", type=pathlib.Path, help="write all runs as JSON")
    parser.add_argument("rest", nargs="*", help="after --: options of both programs, e.g. -- --width 256")
    options = parser.parse_args()
    run_peer(["--stage", 1, "--steps", 1, "--warmup", 0, "--width", 64, "--layers", 1], options.world_size)
    saved = {}
    for stage in options.stages:
        arguments = ["--stage", stage, "--steps", options.steps, "--warmup", options.warmup, *options.rest]
        ours, peer, worst = [], [], 0.0
        for _ in range(options.rounds):
            peer.append(run_peer(arguments, options.world_size))
            ours.append(run_ours(options.program.resolve(), arguments, options.world_size))
            worst = max(worst, verify(ours[-1], peer[-1]))
        print_table(stage, ours, peer, worst)
        saved[f"stage{stage}"] = {"deepspeed": peer, "deepspeed-cpp": ours}
    if options.save:
        options.save.write_text(json.dumps(saved) + "\n")


if __name__ == "__main__":
    main()
