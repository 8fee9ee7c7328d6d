"""An optimizer's state_dict() and load_state_dict(), in one process, and states that a client's optimizer has made before."""

import copy

import pytest
import torch

import deepspeed
from deepspeed._errors import UsageError
from launching import expect_to_pass, names_of

BF16 = {"bf16": {"enabled": True}}
FP16 = {"fp16": {"enabled": True, "loss_scale": 8}}
ADAM = dict(lr=0.05, weight_decay=0.1)


def small_model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))


def make(stage=0, model=None, optimizer=None, **config):
    model = small_model() if model is None else model
    config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": stage}, "zero_allow_untested_optimizer": True, **config}
    config.setdefault("gradient_clipping", 0.0)
    if optimizer is None:
        config["optimizer"] = {"type": "AdamW", "params": ADAM}
    elif not isinstance(optimizer, torch.optim.Optimizer):
        optimizer = optimizer(model.parameters())
    return deepspeed.initialize(
        model=model, optimizer=optimizer, model_parameters=None if optimizer else model.parameters(), config=config
    )[0]


def batch(step):
    return torch.randn(2, 4, generator=torch.Generator().manual_seed(step))


def train(engine, first, last):
    losses = []
    for step in range(first, last):
        loss = engine(batch(step).to(engine._dtype)).float().square().sum()
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    return losses


def train_plainly(model, optimizer, first, last):
    losses = []
    for step in range(first, last):
        loss = model(batch(step)).square().sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


OF_TORCH = {
    "AdamW": lambda params: torch.optim.AdamW(params, **ADAM),
    "amsgrad": lambda params: torch.optim.Adam(params, amsgrad=True, **ADAM),
    "SGD": lambda params: torch.optim.SGD(params, lr=0.05, momentum=0.9, dampening=0.2),
    "NAdam": lambda params: torch.optim.NAdam(params, **ADAM),
    "Adagrad": lambda params: torch.optim.Adagrad(params, lr=0.1, initial_accumulator_value=0.1),
}


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("kind", OF_TORCH)
@pytest.mark.parametrize("how", ["initialize", "load_state_dict"])
def test_resumes_from_an_optimizer_of_torch(stage, kind, how):
    model, clean = small_model(), OF_TORCH[kind]
    optimizer = clean(model.parameters())
    train_plainly(model, optimizer, 0, 3)
    copied = copy.deepcopy(model)
    of_copy = clean(copied.parameters())
    if how == "initialize":
        of_copy.load_state_dict(optimizer.state_dict())
    engine = make(stage, copied, of_copy)
    if how == "load_state_dict":
        engine.optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    torch.testing.assert_close(train(engine, 3, 6), train_plainly(model, optimizer, 3, 6), rtol=1e-5, atol=0)


@pytest.mark.parametrize("kind", OF_TORCH)
def test_resumes_an_optimizer_of_torch_from_stage_0(kind):
    engine = make(0, optimizer=OF_TORCH[kind])
    train(engine, 0, 3)
    model = copy.deepcopy(engine.module)
    optimizer = OF_TORCH[kind](model.parameters())
    optimizer.load_state_dict(copy.deepcopy(engine.optimizer.state_dict()))
    torch.testing.assert_close(train_plainly(model, optimizer, 3, 6), train(engine, 3, 6), rtol=1e-5, atol=0)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("config", [{}, BF16, FP16], ids=["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("kind", ["AdamW of the config", "SGD", "NAdam"])
def test_resumes_in_a_new_engine_bit_for_bit(stage, config, kind, tmp_path):
    optimizer = OF_TORCH.get(kind)
    engine = make(stage, optimizer=optimizer, **config)
    train(engine, 0, 3)
    torch.save([engine.module_state_dict(), engine.optimizer.state_dict()], tmp_path / "both.pt")
    weights, state = torch.load(tmp_path / "both.pt", weights_only=True)
    expected = train(engine, 3, 6)
    resumed = make(stage, optimizer=optimizer, **config)
    resumed.load_module_state_dict(weights)
    resumed.optimizer.load_state_dict(state)
    assert train(resumed, 3, 6) == expected


def test_takes_options_and_keeps_frozen_parameters_numbers():
    model = small_model()
    model[0].weight.requires_grad_(False)
    engine = make(0, model, lambda params: torch.optim.AdamW([{"params": list(params), "name": "all"}], **ADAM))
    train(engine, 0, 1)
    state = engine.optimizer.state_dict()
    assert sorted(state["state"]) == [1, 2, 3] and state["param_groups"][0]["params"] == [0, 1, 2, 3]
    state["param_groups"][0]["lr"] = 0.5
    engine.optimizer.load_state_dict(state)
    assert engine.get_lr() == [0.5] and engine.optimizer.param_groups[0]["name"] == "all"
    assert all(isinstance(param, torch.nn.Parameter) for param in engine.optimizer.param_groups[0]["params"])


def test_names_what_does_not_fit_and_loses_nothing():
    engine = make(1)
    train(engine, 0, 2)
    good = copy.deepcopy(engine.optimizer.state_dict())
    with pytest.raises(UsageError, match="zero_stage 2, this is 1.*save_checkpoint"):
        engine.optimizer.load_state_dict(dict(good, zero_stage=2))
    with pytest.raises(UsageError, match="2 parameter groups, the optimizer has 1"):
        engine.optimizer.load_state_dict(dict(good, param_groups=good["param_groups"] * 2))
    plain = small_model()
    other = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9)
    train_plainly(plain, other, 0, 1)
    with pytest.raises(UsageError, match="momentum_buffer"):
        engine.optimizer.load_state_dict(other.state_dict())
    wide = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Linear(5, 2))
    of_wide = torch.optim.AdamW(wide.parameters())
    train_plainly(wide, of_wide, 0, 1)
    with pytest.raises(UsageError, match="'exp_avg' has 20 elements, parameter '0.weight' has 12"):
        engine.optimizer.load_state_dict(of_wide.state_dict())
    kept = engine.optimizer.state_dict()
    assert all(torch.equal(kept["state"][0][name], good["state"][0][name]) for name in ("exp_avg", "exp_avg_sq"))


@pytest.mark.parametrize("name", names_of("probe_state_dict.py"))
def test_resumes_on_two_ranks(name):
    expect_to_pass("probe_state_dict.py", name)


def test_gives_stage_3_masters_deepspeeds_name_as_well():
    for stage, has in ((2, False), (3, True)):
        config = {"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW"}, "zero_optimization": {"stage": stage}}
        model = torch.nn.Linear(4, 3)
        engine, optimizer = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[:2]
        state = optimizer.state_dict()
        assert engine.zero_optimization_stage() == state["zero_stage"]
        assert ("fp32_flat_groups" in state) == has
        if has:
            assert state["fp32_flat_groups"] is state["single_partition_of_fp32_groups"]
