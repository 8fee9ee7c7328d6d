"""Joins a job, trains a step, makes a group of the script's own, and prints where this network listens beyond loopback."""

import torch
import torch.nn.functional as F

import deepspeed


def listeners():
    for table in ("tcp", "tcp6"):
        for line in open(f"/proc/self/net/{table}").read().splitlines()[1:]:
            local, _, state = line.split()[1:4]
            if state == "0A" and not local.startswith("0100007F:"):
                yield local


def main():
    deepspeed.init_distributed(dist_backend="gloo")
    model = torch.nn.Linear(8, 8)
    config = {"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "Adam"}, "zero_optimization": {"stage": 2}}
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    engine.backward(F.mse_loss(engine(torch.randn(2, 8)), torch.randn(2, 8)))
    engine.step()
    group = torch.distributed.new_group(backend="gloo")
    torch.distributed.all_reduce(torch.ones(10), group=group)
    print("LISTENS", *listeners(), flush=True)
    torch.distributed.barrier()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
