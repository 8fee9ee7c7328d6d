"""Rank 0 trains and waits in a collective of the engine, in which rank 1 is missing; it says what ended the wait."""

import sys
import time

import torch
import torch.nn.functional as F

import deepspeed


def main():
    deepspeed.init_distributed(dist_backend="gloo")
    model = torch.nn.Linear(8, 8)
    config = {"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "Adam", "params": {"lr": 1e-3}}, "zero_optimization": {"stage": 2}}
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    if deepspeed.comm.get_rank() == 1:
        time.sleep(60)
    loss = F.mse_loss(engine(torch.ones(2, 8)), torch.zeros(2, 8))
    print("waiting", flush=True)
    try:
        engine.backward(loss)
        engine.step()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        sys.exit(7)


if __name__ == "__main__":
    main()
