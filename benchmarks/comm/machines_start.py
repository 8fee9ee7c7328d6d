"""Times the start of jobs over two machines, which network namespaces stand for, beside that of one machine (markdown).

    python benchmarks/comm/machines_start.py build/release - --rounds 7
    python benchmarks/comm/machines_start.py build/release PYTHON --rounds 3 ssh

The first argument is the build folder, the second an interpreter with torch, whose ranks are then timed as well, or -. Others name
runners; all that are installed without one. Four ranks of the example gpt2, or of a small script, go to their first step: on one
machine, and on two with each runner, one after the other in each round. Wants root, and what tests/machines wants.
"""

import argparse
import os
import pathlib
import statistics
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "tests" / "machines"))

import machines  # noqa: E402

ONE = "one machine"
SCRIPT = """import os, pathlib, sys
sys.path.insert(0, {programs!r})
import small_net
small_net.train(small_net.make_engine(stage=2), steps=1)
pathlib.Path(sys.argv[1] + os.environ["RANK"]).touch()
"""
CONFIG = """{"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW"}, "zero_optimization": {"stage": 2}}"""
GPT = "--layers 1 --heads 2 --width 16 --context 16 --dropout 0 --steps 1".split()


def wait_for(path, job):
    while not (path.exists() and (path.suffix != ".log" or path.read_text())):
        if job.job.poll() not in (None, 0):
            sys.exit(f"the job has failed:\n{job.said()}")
        time.sleep(0.002)


def has_planned(job, runner):
    # Of one machine the launcher says nothing.
    return not runner or "ranks start on 2 machines" in job.said()


def time_start(job, runner, python):
    """Returns seconds until the ranks start, and until rank 0 has made its first step."""
    done = job.folder / ("step0" if python else "loss.log")
    done.unlink(missing_ok=True)
    flags = [] if runner else ["--num_procs", "4"]
    variables = {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}
    if python:
        program, words = [str(job.folder / "train.py")], [job.folder / "step"]
        variables.update(PYTHON=python, PYTHONPATH=str(job.build / "python"))
    else:
        program = [str(job.build / "examples" / "gpt2")]
        words = ["--deepspeed_config", job.folder / "config.json", "--data", job.folder / "text", *GPT, "--loss_log", done]
    began = time.monotonic()
    job.start(runner, *words, program=program, flags=flags, **variables)
    planned = None
    while planned is None:
        if has_planned(job, runner):
            planned = time.monotonic() - began
        elif job.job.poll() not in (None, 0):
            sys.exit(f"{runner}: the job has failed:\n{job.said()}")
        time.sleep(0.002)
    wait_for(done, job)
    stepped = time.monotonic() - began
    if job.end() != 0:
        sys.exit(f"{runner}: the job has failed:\n{job.said()}")
    return planned, stepped


def print_table(title, times):
    print(f"| {title} | ranks start, least (s) | median | first step, least (s) | median | times one machine's |")
    print("|---|---|---|---|---|---|")
    base = statistics.median(stepped for _, stepped in times[ONE])
    for name, found in times.items():
        ranks, steps = ([pair[i] for pair in found] for i in (0, 1))
        cells = ["", ""] if name == ONE else [f"{min(ranks):.2f}", f"{statistics.median(ranks):.2f}"]
        cells += [f"{min(steps):.2f}", f"{statistics.median(steps):.2f}", f"{statistics.median(steps) / base:.2f}"]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    print()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("python")
    parser.add_argument("runners", nargs="*")
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_intermixed_args()
    reason = "" if os.environ.get(machines.INSIDE) else machines.why_not()
    if reason:
        sys.exit(f"machines_start.py: no machines of network namespaces: {reason}")
    machines.enter()
    import jobs  # it reads the first two arguments itself

    class Start(jobs.JobTest):
        build = args.build.resolve()

        def runTest(self):
            """Is not run: the methods that start jobs are what is wanted."""

    Start.setUpClass()
    job = Start()
    job.setUp()
    (job.folder / "config.json").write_text(CONFIG)
    (job.folder / "text").write_text("The ranks of a job meet, count, and go on together.\n" * 200)
    (job.folder / "train.py").write_text(SCRIPT.format(programs=str(HERE.parent.parent / "tests" / "python" / "programs")))
    runners = args.runners or jobs.installed_runners()
    for python in [None] if args.python == "-" else [None, args.python]:
        times = {name: [] for name in (ONE, *runners)}
        for turn in range(args.rounds + 1):
            for name in times:
                found = time_start(job, "" if name == ONE else name, python)
                if turn > 0:  # the first round fills the caches
                    times[name].append(found)
        print_table("a script of Python" if python else "gpt2", times)
    job.tearDown()


if __name__ == "__main__":
    main()
