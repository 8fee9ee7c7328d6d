"""Trains on null GPUs by the Python package: engines.py engines|pipelines|failing."""

import sys
import time

import torch

import deepspeed
from deepspeed.pipe import LayerSpec, PipelineModule

CONFIG = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2, "gradient_clipping": 1.0,
          "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "bf16": {"enabled": True}}  # fmt: skip


def engine_of(stage):
    model = torch.nn.Sequential(*(torch.nn.Linear(16, 16) for _ in range(3)))
    return deepspeed.initialize(model=model, config={**CONFIG, "zero_optimization": {"stage": stage}})[0]


def train(engine):
    for _ in range(4):
        loss = engine(torch.ones(2, 16, device=engine.device, dtype=torch.bfloat16)).square().mean()
        engine.backward(loss)
        engine.step()


def engines():
    """Several engines live and train beside each other, are dropped, and are made again."""
    for _ in range(2):
        made = [engine_of(stage) for stage in (0, 2, 3)]
        for engine in made:
            train(engine)
        made.reverse()
        for engine in made:
            train(engine)
        del engine, made


def pipelines():
    for schedule, chunks in (("1f1b", 1), ("interleaved", 2), ("zero_bubble", 1)):
        net = PipelineModule([LayerSpec(torch.nn.Linear, 16, 16) for _ in range(4)], num_stages=2, loss_fn=torch.nn.MSELoss(),
                             **({"model_chunks": chunks} if chunks > 1 else {}))  # fmt: skip
        pipeline = {"schedule": schedule, **({"model_chunks": chunks} if chunks > 1 else {})}
        engine = deepspeed.initialize(model=net, config={**CONFIG, "pipeline": pipeline})[0]
        row = torch.ones(2, 16, dtype=torch.bfloat16)
        batches = iter([(row, row)] * 100)
        for _ in range(2):
            engine.train_batch(batches)
        del engine, net


def failing():
    """Rank 1 ends by an error while its device waits for rank 0, which does not come."""
    engine = engine_of(2)
    train(engine)
    ones = torch.ones(4, device=engine.device)
    torch.distributed.all_reduce(ones)  # the first one connects the ranks, which the hosts wait for
    if deepspeed.comm.get_rank() == 0:
        time.sleep(600)
    torch.distributed.all_reduce(ones)
    raise ValueError("the data of rank 1 are spoiled")


if __name__ == "__main__":
    deepspeed.init_distributed()
    {"engines": engines, "pipelines": pipelines, "failing": failing}[sys.argv[1]]()
    torch.distributed.destroy_process_group()
    print("done")
