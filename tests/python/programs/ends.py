"""Trains some steps on each rank and ends as its argument says; the script has used the group itself just before."""
import json
import os
import signal
import sys

import torch
import torch.nn.functional as F

import deepspeed


def main():
    how = json.loads(sys.argv[1])["how"]
    deepspeed.init_distributed(dist_backend="gloo")
    model = torch.nn.Linear(64, 64)
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "optimizer": {"type": "Adam", "params": {"lr": 1e-3}},
        "zero_optimization": {"stage": int(sys.argv[2]) if len(sys.argv) > 2 else 2},
    }
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    for _ in range(2):
        engine.backward(F.mse_loss(engine(torch.randn(2, 64)), torch.randn(2, 64)))
        engine.step()
    torch.distributed.all_reduce(torch.ones(1000))
    if deepspeed.comm.get_rank() == 0:
        print('RESULT {"trained": true}', flush=True)
    if how == "exception":
        raise KeyError("the script's own")
    if how == "exit":
        sys.exit(3)
    if how == "sigterm":
        os.kill(os.getpid(), signal.SIGTERM)
    if how == "destroy":
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
