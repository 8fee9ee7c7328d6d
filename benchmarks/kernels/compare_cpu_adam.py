"""Times DeepSpeed's CPU Adam op on one thread: fp32 parameters, gradients and moments. Prints ns per parameter as JSON.

    python deepspeed_cpu_adam.py [--numel 10000000 50000000] [--repeats 10]
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import time

os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["PATH"] = str(pathlib.Path(sys.executable).parent) + os.pathsep + os.environ["PATH"]  # ninja lies there

import torch  # noqa: E402

LR, BETAS, EPS, WEIGHT_DECAY = 1e-3, (0.9, 0.95), 1e-8, 0.1


def make_parameter(numel):
    parameter = torch.nn.Parameter(torch.linspace(-1, 1, numel))
    parameter.grad = torch.linspace(1, -0.5, numel)
    return parameter


def verify(make_optimizer):
    """Three steps against torch's AdamW on a size that is no multiple of a vector."""
    ours, theirs = make_parameter(100_003), make_parameter(100_003)
    reference = torch.optim.AdamW([theirs], lr=LR, betas=BETAS, eps=EPS, weight_decay=WEIGHT_DECAY)
    optimizer = make_optimizer(ours)
    for _ in range(3):
        optimizer.step()
        reference.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def nanoseconds(make_optimizer, numel, repeats):
    parameter = make_parameter(numel)
    optimizer = make_optimizer(parameter)
    for _ in range(2):
        optimizer.step()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        optimizer.step()
        times.append((time.perf_counter() - begin) / numel * 1e9)
    return {"best": round(min(times), 4), "median": round(statistics.median(times), 4)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--numel", type=int, nargs="+", default=[10_000_000, 50_000_000])
    parser.add_argument("--repeats", type=int, default=10)
    options = parser.parse_args()
    torch.set_num_threads(1)
    from deepspeed.ops.adam import DeepSpeedCPUAdam

    settings = {"lr": LR, "betas": BETAS, "eps": EPS, "weight_decay": WEIGHT_DECAY}
    candidates = {
        "deepspeed_cpu_adam": lambda p: DeepSpeedCPUAdam([p], adamw_mode=True, **settings),
        "torch_fused_adamw": lambda p: torch.optim.AdamW([p], fused=True, **settings),
    }
    for name, make_optimizer in candidates.items():
        verify(make_optimizer)
        for numel in options.numel:
            result = {"kernel": name, "numel": numel, "ns_per_param": nanoseconds(make_optimizer, numel, options.repeats)}
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
