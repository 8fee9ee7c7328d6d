"""Schedules of learning rates, with an engine and without one, in one process."""

import logging

import pytest
import torch

import deepspeed
from deepspeed._errors import ConfigError
from deepspeed.runtime.lr_schedules import OneCycle, WarmupLR
from one_engine import CONFIG, make, step


def test_drives_the_engines_rate_by_a_torch_schedule():
    model = torch.nn.Linear(4, 3)
    client = torch.optim.AdamW(model.parameters(), lr=1.0)
    engine, optimizer, _, _ = make({"train_micro_batch_size_per_gpu": 2}, model=model, optimizer=client)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    rates = []
    for _ in range(3):
        step(engine)
        schedule.step()
        rates.append(engine.get_lr()[0])
    assert optimizer.param_groups is client.param_groups
    assert rates == [0.5, 0.25, 0.125] and client.param_groups[0]["lr"] == 0.125


def test_drives_an_optimizer_without_an_engine():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0, momentum=0.9)
    schedule = WarmupLR(optimizer, warmup_min_lr=0.0, warmup_max_lr=0.1, warmup_num_steps=4, warmup_type="linear")
    rates = []
    for _ in range(6):
        schedule.step()
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates == pytest.approx([0.0, 0.025, 0.05, 0.075, 0.1, 0.1]) or rates == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1, 0.1])
    state = schedule.state_dict()
    again = WarmupLR(optimizer, warmup_min_lr=0.0, warmup_max_lr=0.1, warmup_num_steps=4, warmup_type="linear")
    again.load_state_dict(state)
    assert again.get_last_lr() == schedule.get_last_lr()
    cycle = OneCycle(optimizer, cycle_min_lr=0.1, cycle_max_lr=0.3, cycle_first_step_size=2)
    cycle.step()
    assert 0.1 <= optimizer.param_groups[0]["lr"] <= 0.3


def test_accepts_a_warm_up_of_no_steps_only_in_configs():
    config = {**CONFIG, "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.5, "warmup_num_steps": 0}}}
    engine = make(config)[0]
    for _ in range(3):
        step(engine)
    assert engine.get_lr() == [0.5]
    with pytest.raises(ValueError, match="warmup_num_steps is 0, expected a whole number of at least 1"):
        WarmupLR(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0), warmup_num_steps=0)


def test_warms_up_logarithmically_for_an_unknown_type():
    optimizers = [torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0) for _ in range(2)]
    unknown, known = (WarmupLR(mine, warmup_num_steps=4, warmup_type=kind) for mine, kind in zip(optimizers, ("cubic", "log")))
    assert unknown.warmup_type == "log"
    for schedule in (unknown, known):
        schedule.step()
        schedule.step()
    assert unknown.get_last_lr() == known.get_last_lr() and 0 < unknown.get_last_lr()[0] < 1


class Halving:
    """Is a schedule with the least that an engine asks for."""

    def __init__(self, optimizer):
        self.optimizer, self.steps = optimizer, 0

    def step(self):
        self.steps += 1
        for group in self.optimizer.param_groups:
            group["lr"] /= 2

    def state_dict(self):
        return {"steps": self.steps}

    def load_state_dict(self, state):
        self.steps = state["steps"]


@pytest.mark.parametrize("config", [{}, {"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 50}}}])
def test_steps_and_saves_a_schedule_that_a_script_puts_into_the_engine(config, tmp_path):
    engine, optimizer, _, before = make({**CONFIG, **config})
    optimizer.param_groups[0]["lr"] = 0.8
    began_at = None if before is None else before.last_batch_iteration
    engine.lr_scheduler = own = Halving(optimizer)
    for _ in range(3):
        step(engine)
    assert engine.lr_scheduler is own and own.steps == 3 and engine.get_lr() == [0.1]
    assert before is None or before.last_batch_iteration == began_at
    engine.save_checkpoint(tmp_path)
    own.steps = 0
    engine.load_checkpoint(tmp_path)
    assert own.steps == 3
    engine.lr_scheduler = None
    step(engine)
    assert own.steps == 3 and engine.get_lr() == [0.1] and engine.lr_scheduler is None


def test_refuses_a_schedule_without_a_step():
    engine = make()[0]
    with pytest.raises(deepspeed.DeepSpeedError, match=r"lr_scheduler: a dict has no step\(\)"):
        engine.lr_scheduler = {}


def test_keeps_tensors_of_rates_and_shows_parameters():
    def adam(lr=0.1):
        return torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=lr, betas=(0.85, 0.99))

    rate = torch.tensor(0.1, dtype=torch.float64)
    optimizer = adam(rate)
    schedule = WarmupLR(optimizer, warmup_max_lr=0.5, warmup_num_steps=2, warmup_type="linear")
    for _ in range(3):
        schedule.step()
    assert optimizer.param_groups[0]["lr"] is rate and rate.item() == 0.5
    inherited = adam(0.3)
    WarmupLR(inherited, warmup_num_steps=2).step(5)
    assert inherited.param_groups[0]["lr"] == pytest.approx(0.3)
    assert (schedule.warmup_num_steps, schedule.warmup_type) == (2, "linear")
    with pytest.raises(AttributeError, match="no_such_parameter"):
        schedule.no_such_parameter
    with pytest.raises(ValueError, match="warmup_num_steps"):
        WarmupLR(adam(), warmup_num_steps=None)
    cycle = OneCycle(adam(), cycle_min_lr=0.1, cycle_max_lr=0.2, cycle_min_mom=0.7, cycle_max_mom=0.9)
    cycle.step()
    assert cycle.get_mom() == [cycle.optimizer.param_groups[0]["betas"]] and 0.89 < cycle.get_mom()[0][0] <= 0.9
    assert OneCycle(adam(), cycle_min_lr=0.1, cycle_max_lr=0.2, cycle_momentum=False).get_mom() is None


def test_passes_steps_arguments_to_a_scripts_schedule():
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    config = {"train_micro_batch_size_per_gpu": 4}
    engine = deepspeed.initialize(model=model, optimizer=optimizer, lr_scheduler=schedule, config=config)[0]
    seen = []
    for _ in range(4):
        engine.backward(engine(torch.ones(4, 4)).square().mean())
        engine.step(lr_kwargs={"metrics": 1.0})
        seen.append(engine.get_lr()[0])
    assert seen == pytest.approx([1e-2, 1e-3, 1e-4, 1e-5])


@pytest.mark.parametrize("stage", [0, 1, 3])
def test_shows_torchs_optimizer_below_the_wrapper(stage):
    config = {**CONFIG, "zero_optimization": {"stage": stage}, "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 2}}}
    engine, optimizer, _, schedule = make(config)
    assert isinstance(schedule.optimizer, torch.optim.Optimizer)
    assert schedule.optimizer is (optimizer.optimizer if stage > 0 else optimizer)
    assert type(schedule.optimizer).__name__ == "FusedAdam" or stage == 0
    for _ in range(2):
        step(engine)
    assert [group["lr"] for group in schedule.optimizer.param_groups] == schedule.get_last_lr() == engine.get_lr()


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("kind", ["callable", "client", "over the engine's"])
def test_causes_no_warning_of_torch_after_the_engines_step(kind, stage, recwarn):
    model = torch.nn.Linear(4, 3)
    config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": stage}}
    arguments = {"model_parameters": model.parameters()}

    def halving(optimizer):
        return torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)

    if kind == "client":
        arguments["optimizer"] = torch.optim.AdamW(model.parameters(), lr=1.0)
    else:
        config["optimizer"] = {"type": "AdamW", "params": {"lr": 1.0}}
    if kind == "callable":
        arguments["lr_scheduler"] = halving
    engine, optimizer, _, schedule = deepspeed.initialize(model=model, config=config, **arguments)
    basic = arguments.get("optimizer", optimizer.optimizer if stage > 0 else optimizer)
    if kind != "callable":
        schedule = halving(basic)
    assert schedule.optimizer is basic
    rates = []
    for _ in range(3):
        step(engine)
        if kind != "callable":
            schedule.step()
        rates.append(engine.get_lr()[0])
    assert rates == [0.5, 0.25, 0.125] and optimizer.param_groups[0]["lr"] == 0.125
    assert not [str(each.message) for each in recwarn if "lr_scheduler" in str(each.message)]
    assert list(basic.state), "it shows the states"


@pytest.mark.parametrize("value", ["auto", None])
def test_refuses_a_rate_that_no_client_has_filled_in(value):
    config = {"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW", "params": {"lr": value}}}
    shown = '"auto"' if value else "null"
    with pytest.raises(ConfigError, match=f"optimizer.params.lr: got {shown}, expected a number"):
        make(config)
    model = torch.nn.Linear(4, 3)
    step(make(config, model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=0.5))[0])  # the section is not used


def test_names_other_autos_of_optimizer_and_schedule(caplog):
    logging.getLogger("DeepSpeed").propagate = True
    params = {"warmup_num_steps": "auto", "warmup_max_lr": 0.5}
    config = {**CONFIG, "scheduler": {"type": "WarmupLR", "params": params}}
    config["optimizer"] = {"type": "AdamW", "params": {"lr": 0.5, "betas": "auto", "weight_decay": "auto"}}
    make(config)
    assert 'the "auto" of optimizer.params.betas, optimizer.params.weight_decay: the default holds' in caplog.text
    assert 'the "auto" of scheduler.params.warmup_num_steps: the default holds' in caplog.text
