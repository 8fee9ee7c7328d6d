"""Trains some steps on each rank and ends as its argument says; the script has used the group itself just before."""

import builtins
import json
import os
import signal
import sys

import torch
import torch.nn.functional as F

import deepspeed

kept = []  # lives until the interpreter takes its modules down


def rate_of(step):
    return 1.0 / (1 + step)


def make_held_engine(stage):
    """Keeps an engine that calls Python: for the optimizer's steps, and for the schedule of the script."""
    model = torch.nn.Linear(64, 64)
    config = {"train_micro_batch_size_per_gpu": 2, "zero_allow_untested_optimizer": True, "zero_optimization": {"stage": stage}}
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.NAdam(model.parameters()),
        lr_scheduler=lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, rate_of),
        config=config,
    )
    kept.append(engine)
    builtins.kept_engine = engine  # modules go before it
    return engine


def make_engine(stage):
    model = torch.nn.Linear(64, 64)
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "optimizer": {"type": "Adam", "params": {"lr": 1e-3}},
        "zero_optimization": {"stage": stage},
    }
    return deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]


def use_own_groups():
    """Ends on collectives under way, in groups of the script of which it holds one; torch's threads drop the tensors."""
    groups = [torch.distributed.new_group() for _ in range(2)]
    for _ in range(30):
        for group in (*groups, None):
            torch.distributed.all_reduce(torch.ones(300000), group=group, async_op=True)
    kept.append(groups[0])


def main():
    how = json.loads(sys.argv[1])["how"]
    deepspeed.init_distributed(dist_backend="gloo")
    stage = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    engine = make_held_engine(stage) if how == "held" else make_engine(stage)
    for _ in range(2):
        engine.backward(F.mse_loss(engine(torch.randn(2, 64)), torch.randn(2, 64)))
        engine.step()
    torch.distributed.all_reduce(torch.ones(1000))
    if deepspeed.comm.get_rank() == 0:
        print('RESULT {"trained": true}', flush=True)
    if how == "groups":
        use_own_groups()
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
