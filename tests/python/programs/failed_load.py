"""A load that one rank's client_state ends changes the engine of no rank, at every stage."""

import json
import sys

import torch
import torch.distributed as dist

import deepspeed


class Own:
    """Is no safe global."""


def make(stage):
    torch.manual_seed(1)
    model = torch.nn.Linear(4, 4)
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {"stage": stage},
        "optimizer": {"type": "AdamW", "params": {"lr": 0.1}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 9}},
    }
    return deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]


def step(engine):
    engine.backward(engine(torch.ones(1, 4)).pow(2).sum())
    engine.step()


def state_of(engine):
    """Returns all that a load changes."""
    params = dict(engine.module.named_parameters())
    with deepspeed.zero.GatheredParameters(list(params.values())):
        weights = {name: param.detach().clone() for name, param in params.items()}
    read = deepspeed.utils.safe_get_full_optimizer_state
    moments = {name: [read(param, key).clone() for key in ("exp_avg", "exp_avg_sq")] for name, param in params.items()}
    counts = [engine.global_steps, engine.global_samples, engine.micro_steps, engine.lr_scheduler.state_dict()]
    return weights, moments, counts, engine.optimizer.param_groups[0]["lr"], torch.get_rng_state()


def are_equal(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(are_equal(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(are_equal, one, other))
    return one == other


def main():
    folder = json.loads(sys.argv[1])["folder"]
    deepspeed.init_distributed(dist_backend="gloo")
    rank = dist.get_rank()
    for stage in (0, 1, 2, 3):
        engine = make(stage)
        for _ in range(2):
            step(engine)
        engine.save_checkpoint(folder, tag=f"own{stage}", client_state={"args": Own()})
        for _ in range(2):
            step(engine)
        before = state_of(engine)
        try:
            with torch.serialization.safe_globals([Own] if rank == 0 else []):
                engine.load_checkpoint(folder, tag=f"own{stage}")
        except deepspeed.CheckpointError as error:
            assert "client_state.args" in str(error) and "Own, which is no safe global" in str(error), error
            assert rank == 1 or "rank 1" in str(error), error
        else:
            raise AssertionError(f"stage {stage}: it was loaded")
        assert are_equal(before, state_of(engine)), f"stage {stage}: the engine has changed"
        with torch.serialization.safe_globals([Own]):
            assert type(engine.load_checkpoint(folder, tag=f"own{stage}")[1]["args"]) is Own
        assert engine.global_steps == 2
        step(engine)
    print('RESULT {"passed": true}')


if __name__ == "__main__":
    main()
