"""CPU AdamW in one run: DeepSpeed's op, torch's fused one and the kernels of this project, step by step in turns.

    python compare_cpu_adam.py --program build/release/benchmarks/kernels_cpu_adam [--numel 20000000] [--rounds 30]

For each number of threads two processes hold the arrays of their contenders, and only one of them works at a time: every
round steps each contender once, so that a change of the machine's pace meets all alike. fp32 parameters and gradients.
Ratios are medians over the rounds of (time of the other / time of ours) within a round.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

HYPERPARAMETERS = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}


class Server:
    """A process that makes one step of contender k for each line "k" and answers with the seconds."""

    def __init__(self, command, threads):
        environment = dict(os.environ, OMP_NUM_THREADS=str(threads), OMP_WAIT_POLICY="passive")
        self.process = subprocess.Popen(command + ["--serve"], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.names = None
        for line in self.process.stdout:  # whatever comes before is talk
            if line.startswith("serving "):
                self.names = json.loads(line.removeprefix("serving "))
                return
        raise SystemExit(f"{command[0]} ended before it served, exit status {self.process.wait()}")

    def step(self, index):
        self.process.stdin.write(f"{index}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def make_parameter(torch, numel):
    parameter = torch.nn.Parameter(torch.linspace(-1, 1, numel))
    parameter.grad = torch.linspace(1, -0.5, numel)
    return parameter


def verify(torch, make_optimizer):
    """Three steps against torch's AdamW on a size that is no multiple of a vector."""
    ours, theirs = make_parameter(torch, 100_003), make_parameter(torch, 100_003)
    reference = torch.optim.AdamW([theirs], **HYPERPARAMETERS)
    optimizer = make_optimizer(ours)
    for _ in range(3):
        optimizer.step()
        reference.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def serve(numel, threads):
    """The Python side: DeepSpeed's op and torch's fused AdamW."""
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    # ninja, which builds the op, lies beside the interpreter
    os.environ["PATH"] = str(pathlib.Path(sys.executable).parent) + os.pathsep + os.environ["PATH"]
    import torch

    from deepspeed.ops.adam import DeepSpeedCPUAdam

    torch.set_num_threads(threads)
    contenders = {
        "DeepSpeedCPUAdam": lambda p: DeepSpeedCPUAdam([p], adamw_mode=True, **HYPERPARAMETERS),
        "torch fused AdamW (Python)": lambda p: torch.optim.AdamW([p], fused=True, **HYPERPARAMETERS),
    }
    optimizers = []
    for make_optimizer in contenders.values():
        verify(torch, make_optimizer)
        optimizers.append(make_optimizer(make_parameter(torch, numel)))
    print("serving " + json.dumps(list(contenders)), flush=True)
    for line in sys.stdin:
        begin = time.perf_counter()
        optimizers[int(line)].step()
        print(time.perf_counter() - begin, flush=True)


def measure(options, threads):
    """Seconds by contender, one a round."""
    size = ["--numel", str(options.numel), "--threads", str(threads)]
    servers = [Server([sys.executable, __file__] + size, threads), Server([options.program] + size, threads)]
    # A, B, A, B: the contenders of the two processes take turns.
    turns = sorted((index, number, name) for number, server in enumerate(servers) for index, name in enumerate(server.names))
    seconds = {name: [] for _, _, name in turns}
    for round_number in range(options.rounds + 2):
        for index, number, name in turns:
            elapsed = servers[number].step(index)
            if round_number >= 2:
                seconds[name].append(elapsed)
    for server in servers:
        server.close()
    return seconds


def report(seconds, numel, threads):
    references = ["DeepSpeedCPUAdam", "torch fused AdamW (Python)"]
    for name, times in seconds.items():
        ratios = [statistics.median(other / own for other, own in zip(seconds[reference], times)) for reference in references]
        print(
            f"{threads:7} | {name:34} | {min(times) / numel * 1e9:7.3f} | {statistics.median(times) / numel * 1e9:9.3f} | "
            f"{ratios[0]:12.3f} | {ratios[1]:14.3f}",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", help="the benchmark kernels_cpu_adam of this project")
    parser.add_argument("--numel", type=int, default=20_000_000)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve(options.numel, options.threads[0])
    if options.program is None:
        parser.error("--program is missing")
    print(f"{options.numel} parameters, {options.rounds} rounds; ns a parameter; ratios: how many times as fast as ...")
    print(f"{'threads':7} | {'':34} | {'minimum':>7} | {'median':>9} | {'DeepSpeed':>12} | {'torch fused':>14}")
    for threads in options.threads:
        report(measure(options, threads), options.numel, threads)


if __name__ == "__main__":
    main()
