"""Probes of zero.Init: models whose parameters are partitioned while they are being built."""

import torch
import torch.nn as nn

import deepspeed
from probes import main, probe
from small_net import Net, config, expect_close, make_engine, make_net, train, train_plain


@probe
def models_are_born_partitioned():
    torch.manual_seed(5)
    expected = Net()
    torch.manual_seed(5)
    with deepspeed.zero.Init(config_dict_or_path={"zero_optimization": {"stage": 3}, "train_batch_size": "auto"}):
        model = Net()
    assert hasattr(model.inner.weight, "ds_id")
    with deepspeed.zero.GatheredParameters(list(model.parameters())):
        assert torch.equal(model.inner.weight, expected.inner.weight)
    found = train(make_engine(model=model))
    assert all(abs(a - b) < 1e-6 for a, b in zip(found, train(make_engine(1, model=expected))))


@probe
def parameters_frozen_from_birth_are_partitioned():
    class Frozen(Net):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.full((10,), 0.5), requires_grad=False)
            self.same = self.scale
            self.count = nn.Parameter(torch.ones(3, dtype=torch.long), requires_grad=False)

        def forward(self, tokens):
            return super().forward(tokens) * self.scale

    torch.manual_seed(0)
    expected = train(make_engine(1, model=Frozen()))
    torch.manual_seed(0)
    with deepspeed.zero.Init(config_dict_or_path=config()):
        model = Frozen()
    assert model.same is model.scale and not model.scale.requires_grad and not hasattr(model.count, "ds_id")
    assert model.scale.ds_status == deepspeed.zero.ZeroParamStatus.NOT_AVAILABLE and model.scale.ds_tensor.numel() == 5
    found = train(make_engine(model=model))
    assert all(abs(a - b) < 1e-6 for a, b in zip(found, expected)), (found, expected)
    with deepspeed.zero.Init(config_dict_or_path=config(bf16={"enabled": True})):
        model = Frozen()
    assert model.scale.dtype == torch.bfloat16
    after = nn.Linear(2, 2)
    after.register_parameter("frozen", nn.Parameter(torch.ones(2), requires_grad=False))
    assert not hasattr(after.frozen, "ds_id")


@probe
def a_model_that_is_built_is_partitioned():
    model, expected = make_net(), make_net()
    deepspeed.zero.Init(module=model, config_dict_or_path={"zero_optimization": {"stage": 3}})
    assert all(hasattr(param, "ds_id") for param in model.parameters())
    with deepspeed.zero.GatheredParameters(list(model.parameters())):
        for found, wanted in zip(model.parameters(), expected.parameters()):
            assert torch.equal(found, wanted)


@probe
def numbers_of_parameters_stay_and_are_equal_on_all_ranks():
    with deepspeed.zero.Init():
        inner = nn.Linear(4, 4)
        assert hasattr(inner.weight, "ds_id"), "a submodule shows its number while the model is being built"
        model = nn.Sequential(inner, nn.Linear(4, 2))
    numbers = [param.ds_id for param in model.parameters()]
    assert len(set(numbers)) == 4
    all_ranks = [None] * deepspeed.comm.get_world_size()
    torch.distributed.all_gather_object(all_ranks, numbers)
    assert all(held == numbers for held in all_ranks)
    make_engine(model=model)
    assert [param.ds_id for param in model.parameters()] == numbers


@probe
def initialize_runs_inside_of_a_zero_init():
    with deepspeed.zero.Init():
        engine = make_engine(model=nn.Linear(4, 4))
        later = nn.Linear(4, 4)
    engine.backward(engine(torch.ones(2, 4)).sum())
    engine.step()
    assert later.weight.ds_status.name == "NOT_AVAILABLE"
    assert engine.module.weight.ds_id < later.weight.ds_id


@probe
def a_model_is_born_while_the_engine_of_an_earlier_one_lives():
    earlier = make_engine()
    before = train(earlier)
    torch.manual_seed(1)
    with deepspeed.zero.Init(config_dict_or_path={"zero_optimization": {"stage": 3}, "train_batch_size": "auto"}):
        model = Net()
    later = make_engine(model=model)
    expect_close(before, train_plain(make_net()))
    expect_close(train(later), train_plain(make_net(1)))
    assert train(earlier, 1)[0] < before[0]


@probe
def memory_holds_shards_while_a_large_model_is_born():
    width, layers = 2048, 24
    whole = 4 * width * width * layers

    def peak():
        with open("/proc/self/status") as status:
            return next(1024 * int(line.split()[1]) for line in status if line.startswith("VmHWM"))

    with deepspeed.zero.Init(config_dict_or_path={"zero_optimization": {"stage": 3}}):
        nn.Linear(width, width)
    before = peak()
    with deepspeed.zero.Init(config_dict_or_path={"zero_optimization": {"stage": 3}}):
        model = nn.Sequential(*[nn.Linear(width, width, bias=False) for _ in range(layers)])
    grown = peak() - before
    assert sum(param.ds_tensor.numel() for param in model.parameters()) * 4 == whole // 2
    assert grown < whole * 0.65, f"{grown / 1e6:.0f} MB for a model of {whole / 1e6:.0f} MB"


if __name__ == "__main__":
    main()
