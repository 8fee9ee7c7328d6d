"""Trains the pipeline of train_batch.cpp under DeepSpeed, or under this project's package: one JSON line on rank 0.

torchrun --nproc_per_node 2 peer.py --stages 2
"""

import argparse
import json
import statistics
import time

import torch

import deepspeed
from deepspeed.pipe import LayerSpec, PipelineModule


def formula(sizes, offset, scale):
    count = 1
    for size in sizes:
        count *= size
    values = torch.sin(torch.arange(count, dtype=torch.float64) * 0.37 + offset) * scale
    return values.to(torch.float32).view(sizes)


class Block(torch.nn.Module):
    def __init__(self, width, index):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up = torch.nn.Linear(width, 4 * width)
        self.down = torch.nn.Linear(4 * width, width)
        with torch.no_grad():
            self.up.weight.copy_(formula(self.up.weight.shape, float(index), 0.05))
            self.down.weight.copy_(formula(self.down.weight.shape, index + 0.5, 0.05))
            self.up.bias.zero_()
            self.down.bias.zero_()

    def forward(self, hidden):
        return hidden + self.down(torch.nn.functional.gelu(self.up(self.norm(hidden))))


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=0)
    for name, default in dict(stages=2, layers=8, width=256, rows=256, micro_batches=8, steps=40, warmup=2, zero_stage=1).items():
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser.parse_args()


def batches(options, step):
    for index in range(options.micro_batches):
        place = float(step * options.micro_batches + index)
        sizes = (options.rows, options.width)
        yield formula(sizes, place, 1.0), formula(sizes, place + 0.25, 1.0)


def peak_rss_mb():
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) / 1024


def main():
    options = parse()
    deepspeed.init_distributed(dist_backend="gloo")
    torch.set_num_threads(1)
    module = PipelineModule(
        layers=[LayerSpec(Block, options.width, index) for index in range(options.layers)],
        num_stages=options.stages,
        loss_fn=lambda output, label: (output - label).square().mean(),
        partition_method="uniform",
    )
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": options.micro_batches,
        "steps_per_print": 100000,
        "gradient_clipping": 0.0,
        "zero_optimization": {"stage": options.zero_stage},
        # With a smaller eps the first steps enlarge roundings a thousandfold, and losses could not be compared.
        "optimizer": {"type": "Adam", "params": {"lr": 1e-5, "eps": 1e-5, "torch_adam": True, "adam_w_mode": False}},
        "zero_allow_untested_optimizer": True,
    }
    engine, _, _, _ = deepspeed.initialize(model=module, config=config, model_parameters=list(module.parameters()))
    losses, times = [], []
    for step in range(options.warmup + options.steps):
        data = list(batches(options, step))
        torch.distributed.barrier()
        begin = time.perf_counter()
        loss = engine.train_batch(iter(data))
        losses.append(float(loss))
        if step >= options.warmup:
            times.append(1000 * (time.perf_counter() - begin))
    peak = torch.tensor([peak_rss_mb()])
    torch.distributed.all_reduce(peak, op=torch.distributed.ReduceOp.MAX)
    if torch.distributed.get_rank() == 0:
        print(json.dumps({"losses": losses, "step_ms": statistics.median(times), "peak_mb": float(peak)}), flush=True)


if __name__ == "__main__":
    main()
