"""Optimizers of the script from stage 1 on, where they step flat slices: elementwise ones train, others are refused or warned of."""

import random

import pytest
import torch

import deepspeed
from deepspeed.utils.logging import logger
from one_engine import CONFIG, make, step

TRIED = {key: value for key, value in CONFIG.items() if key != "optimizer"} | {"zero_allow_untested_optimizer": True}


def config_of(stage):
    return {**TRIED, "zero_optimization": {"stage": stage}}


class Base(torch.optim.Optimizer):
    """An optimizer of the script: `strength` has no default."""

    def __init__(self, params, strength, **options):
        self.calls = {"steps": 0}
        super().__init__(params, {"lr": 0.1, "strength": strength, **options})

    @torch.no_grad()
    def step(self, closure=None):
        self.calls["steps"] += 1
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is not None:
                    self.state[param].setdefault("seen", torch.zeros_like(param)).add_(param.grad)
                    self.move(param, group)

    def move(self, param, group):
        """Is elementwise: the sign of what was seen."""
        param.add_(self.state[param]["seen"].sign(), alpha=-group["lr"] * group["strength"])


class ByNorm(Base):
    def move(self, param, group):
        param.add_(param.grad * (param.norm() / param.grad.norm()), alpha=-group["lr"])


class Clipping(Base):
    def move(self, param, group):
        norm = sum(other.grad.square().sum() for other in group["params"]).sqrt()
        param.add_(param.grad / norm.clamp(min=1.0), alpha=-group["lr"])


class Centering(Base):
    def move(self, param, group):
        grad = param.grad - param.grad.mean(dim=tuple(range(1, param.dim())), keepdim=True) if param.dim() > 1 else param.grad
        param.add_(grad, alpha=-group["lr"])


class FactoringLargeOnes(Base):
    def move(self, param, group):
        rows = param.grad.square().mean(-1, keepdim=True) if param.dim() > 1 and min(param.shape) >= 128 else 1.0
        param.add_(param.grad / rows, alpha=-group["lr"])


class Noisy(Base):
    def move(self, param, group):
        param.add_(param.grad + torch.randn_like(param), alpha=-group["lr"])


class OfDevices(Base):
    def move(self, param, group):
        if not param.is_cuda and type(param) is torch.nn.Parameter and param.numel() > 20:
            raise RuntimeError("no such kernel")
        param.add_(param.grad, alpha=-group["lr"])


class Preconditioned(Base):
    """Keeps a matrix that is larger than the parameter, of matrices alone, and what no checkpoint holds."""

    def move(self, param, group):
        state = self.state[param]
        state.setdefault("names", ["a"])
        if param.dim() < 2:
            return param.add_(param.grad, alpha=-group["lr"])
        rows = param.shape[0]
        kept = state.setdefault("squares", torch.eye(rows + 3, dtype=torch.float64))
        kept[:rows, :rows] += (param.grad @ param.grad.t()).double()
        return param.add_(torch.linalg.inv(kept[:rows, :rows]).float() @ param.grad, alpha=-group["lr"])


class WithCopies(torch.optim.AdamW):
    """Is elementwise, and holds what cannot be copied."""

    def __init__(self, params):
        super().__init__(params)
        self.names = (name for name in "abc")


def of_torch(name):
    kind = getattr(torch.optim, name, None)
    if kind is None:
        pytest.skip(f"this torch has no {name}")
    return kind


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize("name", ["Adafactor", "Muon", "LBFGS", "SparseAdam"])
def test_refuses_torchs_optimizers_of_whole_parameters_from_stage_1_on(stage, name):
    model = torch.nn.Linear(4, 3, bias=False)
    optimizer = of_torch(name)(model.parameters())
    with pytest.raises(deepspeed.ConfigError, match=rf"stage: got {stage} .*class {name}, which .*expected 0.*set stage 0"):
        make(config_of(stage), model, optimizer=optimizer)


@pytest.mark.parametrize("kind", [ByNorm, Clipping, Centering, FactoringLargeOnes])
def test_finds_those_of_the_script_by_a_trial(kind):
    model = torch.nn.Linear(4, 3)
    with pytest.raises(deepspeed.ConfigError, match=rf"class {kind.__name__}, which updates a flat piece of a parameter otherwise"):
        make(config_of(2), model, optimizer=kind(model.parameters(), strength=0.5))
    make(config_of(0), model, optimizer=kind(model.parameters(), strength=0.5))


def test_tries_out_each_group_that_differs():
    class ByGroup(Base):
        def move(self, param, group):
            (ByNorm if group["by_norm"] else Base).move(self, param, group)

    model = torch.nn.Linear(4, 3)
    groups = [{"params": [model.weight], "by_norm": False}, {"params": [model.bias], "by_norm": True}]
    with pytest.raises(deepspeed.ConfigError, match="class ByGroup"):
        make(config_of(2), model, optimizer=ByGroup(groups, strength=0.5))


@pytest.mark.parametrize("kind", [Noisy, OfDevices, WithCopies])
def test_warns_of_those_that_cannot_be_tried_out(kind, monkeypatch):
    lines = []
    monkeypatch.setattr(logger, "warning", lines.append)
    model = torch.nn.Linear(4, 3)
    optimizer = kind(model.parameters()) if kind is WithCopies else kind(model.parameters(), strength=0.5)
    engine, _, _, _ = make(config_of(2), model, optimizer=optimizer)
    assert len(lines) == 1 and kind.__name__ in lines[0] and "could not be tried out" in lines[0]
    before = engine.module.weight.detach().clone()
    step(engine)
    assert not torch.equal(engine.module.weight, before)


def elementwise_ones(params):
    names = "Adadelta Adagrad Adam AdamW Adamax ASGD NAdam RAdam RMSprop Rprop SGD".split()
    made = {name: getattr(torch.optim, name)(params, lr=0.01) for name in names}
    made["amsgrad"] = torch.optim.Adam(params, amsgrad=True)
    made["maximize"] = torch.optim.AdamW(params, maximize=True)
    made["subclass"] = type("OwnAdam", (torch.optim.Adam,), {})(params)
    made["rate 0"] = type("OwnNAdam", (torch.optim.NAdam,), {})(params, lr=0.0)
    made["own Adagrad"] = type("OwnAdagrad", (torch.optim.Adagrad,), {})(params, initial_accumulator_value=0.3)
    made["own Rprop"] = type("OwnRprop", (torch.optim.Rprop,), {})(params)
    made["a tensor as rate"] = type("OwnAdamax", (torch.optim.Adamax,), {})(params, lr=torch.tensor(0.01))
    made["own"] = Base(params, strength=0.5)
    return made


@pytest.mark.parametrize("name", elementwise_ones([torch.nn.Parameter(torch.ones(2))]))
def test_accepts_elementwise_ones_without_a_warning(name, monkeypatch):
    lines = []
    monkeypatch.setattr(logger, "warning", lines.append)
    model = torch.nn.Linear(4, 3)
    make(config_of(1), model, optimizer=elementwise_ones(list(model.parameters()))[name])
    assert lines == []


def test_leaves_everything_unchanged_after_a_trial():
    model = torch.nn.Linear(4, 3)
    optimizer = Base(model.parameters(), strength=0.5)
    hooked = []
    optimizer.register_step_post_hook(lambda *_: hooked.append(1))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    weights = [param.detach().clone() for param in model.parameters()]
    options = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    torch.manual_seed(5)
    random.seed(5)
    states = torch.get_rng_state(), random.getstate()
    deepspeed._elementwise.require_elementwise(optimizer, 2, [{}])
    assert torch.equal(torch.get_rng_state(), states[0]) and random.getstate() == states[1]
    assert optimizer.calls == {"steps": 0} and not optimizer.state and not hooked
    assert all(torch.equal(param, before) for param, before in zip(model.parameters(), weights))
    assert [param.grad for param in model.parameters()] == [None, None]
    assert optimizer.param_groups[0]["params"] == list(model.parameters()) and schedule.optimizer is optimizer
    assert options == [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]


@pytest.mark.parametrize("name", ["Adafactor", "Muon", "Preconditioned"])
@pytest.mark.parametrize("bias", [False, True])
def test_resumes_states_of_other_shapes_at_stage_0(name, bias, tmp_path, monkeypatch):
    if name == "Muon" and bias:
        pytest.skip("it is for matrices")
    lines = []
    monkeypatch.setattr(logger, "warning", lambda line: lines.append(line))
    monkeypatch.setattr(logger, "warning_once", lambda line: lines.append(line))

    def make_engine():
        torch.manual_seed(3)
        model = torch.nn.Sequential(torch.nn.Linear(4, 1, bias=bias), torch.nn.Linear(1, 3, bias=bias))
        params = list(model.parameters())
        optimizer = Preconditioned(params, strength=0.5) if name == "Preconditioned" else of_torch(name)(params, lr=0.05)
        return make(config_of(0), model, optimizer=optimizer)[0]

    engine, resumed = make_engine(), make_engine()
    inputs = [torch.sin(torch.arange(8.0) + number).view(2, 4) for number in range(6)]
    for each in inputs[:3]:
        step(engine, each)
    engine.save_checkpoint(str(tmp_path))
    resumed.load_checkpoint(str(tmp_path))
    assert [step(resumed, each) for each in inputs[3:]] == [step(engine, each) for each in inputs[3:]]
    assert len(lines) == (name == "Preconditioned") and all(
        "Preconditioned: the state 'names' is no number and no tensor" in line for line in lines
    )
