"""Runs deepspeed_peer.py under DeepSpeed, the same file under this project's Python package, and this project's
end_to_end_zero_step alternately (A B C A B C) on the same model and data, checks that their losses agree, and prints one
table of ratios a stage (markdown).

    VENV/bin/python compare.py [--program build/release/benchmarks/end_to_end_zero_step] [--package build/release/python]
                               [--stages 1 2] [--rounds 3]

The Python that runs this file must have torch 2.11.0 and deepspeed 0.19.6. --package names the folder of the built package
`deepspeed`. An unmeasured first run of the peer lets DeepSpeed compile its kernels.
"""

import argparse
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


def last_json_line(output):
    lines = [line for line in output.splitlines() if line.startswith("{")]
    if not lines:
        raise SystemExit(f"a run printed no result:\n{output}")
    return json.loads(lines[-1])


def run_program(program, arguments, world_size):
    return last_json_line(launch_command([program, *arguments], world_size))


def run_script(arguments, world_size, package=None):
    """Runs the peer's script; under the package of a folder where one is given, else under the installed deepspeed."""
    command = [sys.executable, HERE / "deepspeed_peer.py", "--world_size", world_size, *arguments]
    environment = dict(os.environ, **({"PYTHONPATH": str(package)} if package else {}))
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return last_json_line(done.stdout)


def sides_of(options):
    """Returns what is compared: {name: run(arguments)}, DeepSpeed first."""
    sides = {"DeepSpeed": lambda arguments: run_script(arguments, options.world_size)}
    if options.package:
        package = options.package.resolve()
        sides["deepspeed-cpp, Python"] = lambda arguments: run_script(arguments, options.world_size, package)
    if options.program:
        program = options.program.resolve()
        sides["deepspeed-cpp, C++"] = lambda arguments: run_program(program, arguments, options.world_size)
    if len(sides) == 1:
        raise SystemExit("compare.py: give --program, --package or both")
    return sides


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


def print_table(stage, runs, worst_loss):
    """runs: {side: results of its rounds}; the last columns are ratios to DeepSpeed."""
    first = next(iter(runs.values()))
    print(
        f"\n### Stage {stage}: {first[0]['parameters']:,} parameters, {first[0]['world_size']} ranks, "
        f"{len(first)} rounds of {len(first[0]['step_ms'])} steps; losses agree to {worst_loss:.1e}\n"
    )
    peer, *ours = runs
    print(f"| | {' | '.join(runs)} | " + " | ".join(f"{peer} / {name}" for name in ours) + " |")
    print("|---" * (len(runs) + len(ours) + 1) + "|")
    summaries = {name: summary(rounds) for name, rounds in runs.items()}
    for row in summaries[peer]:
        values = [f"{found[row]:.4g}" for found in summaries.values()]
        ratios = [f"{summaries[peer][row] / summaries[name][row]:.2f}" for name in ours]
        print(f"| {row} | {' | '.join(values + ratios)} |")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, help="end_to_end_zero_step of a build")
    parser.add_argument("--package", type=pathlib.Path, help="the folder that holds the built package deepspeed")
    parser.add_argument("--stages", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--world_size", type=int, default=2)
    parser.add_argument("--save", type=pathlib.Path, help="write all runs as JSON")
    parser.add_argument("rest", nargs="*", help="after --: options of both programs, e.g. -- --width 256")
    options = parser.parse_args()
    sides = sides_of(options)
    sides["DeepSpeed"](["--stage", 1, "--steps", 1, "--warmup", 0, "--width", 64, "--layers", 1])
    saved = {}
    for stage in options.stages:
        arguments = ["--stage", stage, "--steps", options.steps, "--warmup", options.warmup, *options.rest]
        runs, worst = {name: [] for name in sides}, 0.0
        for _ in range(options.rounds):
            for name, run in sides.items():
                runs[name].append(run(arguments))
                worst = max(worst, verify(runs[name][-1], runs["DeepSpeed"][-1]))
        print_table(stage, runs, worst)
        saved[f"stage{stage}"] = runs
    if options.save:
        options.save.write_text(json.dumps(saved) + "\n")


if __name__ == "__main__":
    main()
