"""One training run under DeepSpeed (Python, CPU) for comparison with benchmarks/end_to_end/zero_step.cpp: the GPT and the
data of tests/golden/deepspeed_training at benchmark size, one thread a rank. Prints one JSON line.

    python deepspeed_peer.py --stage 2 --steps 20
"""

import argparse
import json
import os
import pathlib
import sys
import tempfile
import time

STARTED = time.time()
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "tests" / "golden" / "deepspeed_training"))
os.environ.setdefault("DS_ACCELERATOR", "cpu")

from launch_ranks import launch_ranks  # noqa: E402

WEIGHT_SCALE = 0.02


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stage", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20, help="timed steps")
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--world_size", type=int, default=2)
    parser.add_argument("--micro_batch", type=int, default=4)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--vocabulary", type=int, default=1024)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--clipping", type=float, default=1.0)
    parser.add_argument("--rank_output", help=argparse.SUPPRESS)
    return parser.parse_args()


def ds_config(options):
    return {
        "train_micro_batch_size_per_gpu": options.micro_batch,
        "optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}},
        "gradient_clipping": options.clipping,
        "zero_optimization": {"stage": options.stage},
    }


def peak_rss_mb():
    """VmHWM, the most memory that the process ever held."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("/proc/self/status has no VmHWM")


def run_rank(options):
    import formula
    import torch
    import torch.distributed
    from gpt import GPT

    import deepspeed

    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo")
    model = GPT(options.vocabulary, options.context, options.width, options.layers, options.heads)
    parameters = sum(p.numel() for p in model.parameters())  # stage 3 leaves them empty
    filling = time.time()
    formula.fill_parameters(model, WEIGHT_SCALE)
    filling = time.time() - filling  # the formula is no part of a start: both sides leave it out
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=ds_config(options))
    ready_seconds = time.time() - float(os.environ.get("LAUNCH_TIME", STARTED)) - filling
    rank, steps, losses, total = engine.global_rank, [], [], options.warmup + options.steps
    batches = [
        formula.batch(step, rank, options.world_size, options.micro_batch, options.context, options.vocabulary) for step in range(total)
    ]
    for tokens, targets in batches:
        torch.distributed.barrier()
        begin = time.perf_counter()
        loss = engine(tokens, targets)
        engine.backward(loss)
        engine.step()
        steps.append((time.perf_counter() - begin) * 1e3)
        losses.append(loss.item())
    result = {
        "rank": rank,
        "ready_seconds": ready_seconds,
        "step_ms": steps[options.warmup :],
        "losses": losses,
        "peak_rss_mb": peak_rss_mb(),
        "parameters": parameters,
    }
    pathlib.Path(options.rank_output, f"{rank}.json").write_text(json.dumps(result))


def main():
    options = parse()
    if options.rank_output:
        run_rank(options)
        return
    with tempfile.TemporaryDirectory() as folder:
        launch_ranks(__file__, sys.argv[1:] + ["--rank_output", folder], options.world_size)
        ranks = [json.loads(pathlib.Path(folder, f"{r}.json").read_text()) for r in range(options.world_size)]
    print(
        json.dumps(
            {
                "program": "deepspeed",
                "stage": options.stage,
                "world_size": options.world_size,
                "parameters": ranks[0]["parameters"],
                "ready_seconds": max(r["ready_seconds"] for r in ranks),
                "step_ms": [max(times) for times in zip(*(r["step_ms"] for r in ranks))],
                "peak_rss_mb": [r["peak_rss_mb"] for r in ranks],
                "losses": [list(of_ranks) for of_ranks in zip(*(r["losses"] for r in ranks))],
            }
        )
    )


if __name__ == "__main__":
    main()
