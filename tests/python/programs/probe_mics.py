"""Probes of MiCS: shards that several ranks hold each."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

import deepspeed
from deepspeed.runtime.zero.mics import MiCS_Init, MiCS_Offload, MiCS_Optimizer
from probes import main, probe


class Net(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.embed = nn.Embedding(10, width)
        self.inner = nn.Linear(width, width)
        self.outer = nn.Linear(width, 10)

    def forward(self, tokens):
        return self.outer(torch.tanh(self.inner(self.embed(tokens)))).mean(1)


def config(shard_size=None, **more):
    zero = {"stage": 3, "stage3_param_persistence_threshold": 0}
    if shard_size is not None:
        zero["mics_shard_size"] = shard_size
    return {
        "train_micro_batch_size_per_gpu": 4,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}},
        "zero_optimization": zero,
        **more,
    }


def make_net(shard_size, scope, **more):
    torch.manual_seed(3 + dist.get_rank())  # rank 0's values count
    with scope(config_dict_or_path=config(shard_size, **more)):
        return Net()


def make_engine(shard_size=None, scope=deepspeed.zero.Init, **more):
    model = make_net(shard_size, scope, **more)
    return deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config(shard_size, **more))[0]


def train(engine, steps=4):
    losses = []
    for step in range(steps):
        generator = torch.Generator().manual_seed(100 * step + dist.get_rank())
        tokens, targets = torch.randint(0, 10, (4, 6), generator=generator), torch.randint(0, 10, (4,), generator=generator)
        loss = F.cross_entropy(engine(tokens).float(), targets)
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    return losses


def expect_near(found, expected):
    assert all(abs(a - b) < 1e-5 for a, b in zip(found, expected)), (found, expected)


@probe
def training_is_that_of_plain_stage_3():
    expected = train(make_engine())
    for shard_size in (1, 2, 4):
        for scope in (MiCS_Init, deepspeed.zero.MiCS_Init, deepspeed.zero.Init):
            engine = make_engine(shard_size, scope)
            assert isinstance(engine.optimizer, MiCS_Optimizer)
            weight = engine.module.inner.weight
            assert weight.partition_numel() == -(-weight.numel() // shard_size)
            expect_near(train(engine), expected)
            assert engine.mics_shard_size() == shard_size
    assert not isinstance(make_engine().optimizer, MiCS_Optimizer)


@probe
def a_model_that_was_built_elsewhere_is_cut_anew():
    expected = train(make_engine())
    for built in (None, 1, 4):
        model = make_net(built, deepspeed.zero.Init)
        engine = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config(2))[0]
        expect_near(train(engine), expected)
    torch.manual_seed(3 + dist.get_rank())
    model = Net()
    MiCS_Init(module=model, config_dict_or_path=config(2))
    assert model.inner.weight.partition_numel() == model.inner.weight.numel() // 2
    engine = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config(2))[0]
    expect_near(train(engine), expected)


@probe
def the_first_block_saves_and_any_other_loads():
    folder = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folder)
    fp16 = {"fp16": {"enabled": True, "initial_scale_power": 8}}
    engine = make_engine(2, MiCS_Init, **fp16)
    train(engine)
    assert engine.save_non_zero_checkpoint == (dist.get_rank() < 2)
    assert engine.is_first_weights_partition_group() == (dist.get_rank() < 2)
    engine.save_checkpoint(folder[0])
    tag = os.path.join(folder[0], f"global_step{engine.global_steps}")
    assert os.path.exists(engine._get_zero_ckpt_name(folder[0], f"global_step{engine.global_steps}"))
    assert len([name for name in os.listdir(tag) if name.endswith("_optim_states.pt")]) == 2
    expected = train(engine)
    for shard_size in (1, 2, 4, None):
        other = make_engine(shard_size, **fp16)
        assert other.load_checkpoint(folder[0])[0] is not None
        found = train(other)
        assert all(abs(a - b) < 2e-2 for a, b in zip(found, expected)), (shard_size, found, expected)


@probe
def norms_count_each_shard_once():
    norms = []
    for shard_size in (None, 1, 2):
        engine = make_engine(shard_size)
        tokens = torch.arange(24).view(4, 6) % 10
        engine.backward(F.cross_entropy(engine(tokens), torch.arange(4)))
        norms.append(torch.stack(engine.optimizer._get_norm_groups()))
    for other in norms[1:]:
        assert torch.allclose(other, norms[0], rtol=1e-5), norms


@probe
def what_is_missing_is_said():
    for arguments, words in (
        ({}, "config_dict_or_path"),
        ({"config_dict_or_path": config()}, "mics_shard_size: got -1"),
        ({"config_dict_or_path": config(3)}, "divisor of 4"),
    ):
        try:
            with MiCS_Init(**arguments):
                Net()
        except AssertionError as error:  # as DeepSpeed's are; ours are of several kinds at once
            assert words in str(error), error
        else:
            raise RuntimeError(f"{arguments} raised nothing")
    with MiCS_Init(enabled=False):
        assert not hasattr(Net().inner.weight, "ds_id")
    try:
        MiCS_Offload()
    except NotImplementedError as error:
        assert "initialize()" in str(error)


if __name__ == "__main__":
    main()
