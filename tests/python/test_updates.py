"""What a script sees of updates: whether the last one overflowed, and the first rate of a warm-up."""

import pytest
import torch

import deepspeed
from deepspeed._errors import UsageError


def make(**config):
    model = torch.nn.Linear(4, 3)
    config = {"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}, **config}
    return deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[:2]


def micro_step(engine, factor):
    loss = engine(torch.ones(2, 4).half()).float().sum() * factor
    engine.backward(loss)
    engine.step()


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_keeps_the_last_updates_overflow(stage):
    engine, optimizer = make(gradient_accumulation_steps=2, fp16={"enabled": True}, zero_optimization={"stage": stage})
    seen = []
    for factor in (1.0, 1.0, 1.0, float("inf"), 1.0, 1.0, 1.0):
        micro_step(engine, 1e-3 if factor == 1.0 else factor)
        seen.append(bool(optimizer.overflow))
    assert seen == [False, False, False, True, True, False, False]
    assert engine.skipped_steps == 1 and engine.global_steps == 3


@pytest.mark.parametrize("gas", [1, 2])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_treats_a_batch_that_is_dropped_before_the_step_as_zeros(stage, gas):
    def train(drop):
        torch.manual_seed(0)
        engine, optimizer = make(zero_optimization={"stage": stage}, gradient_accumulation_steps=gas)
        for batch in range(3):
            for _ in range(gas):
                loss = engine(torch.ones(2, 4)).square().sum()
                engine.backward(loss * (0.0 if batch == 1 and drop is None else 1.0))
                if batch == 1 and drop is not None and engine.is_gradient_accumulation_boundary():
                    (engine if drop == "engine" else optimizer).zero_grad()
                engine.step()
        assert engine.global_steps == 3 and engine.skipped_steps == 0
        return engine(torch.ones(2, 4)).tolist()

    assert train("engine") == train("optimizer") == train(None)


def test_keeps_the_warm_ups_rate_at_the_first_look_at_the_groups():
    warm_up = {"type": "WarmupLR", "params": {"warmup_min_lr": 0.25, "warmup_max_lr": 0.5, "warmup_num_steps": 4, "warmup_type": "linear"}}
    engine, optimizer = make(scheduler=warm_up)
    rates = [optimizer.param_groups[0]["lr"]]
    for _ in range(5):
        engine.backward(engine(torch.ones(2, 4)).sum())
        engine.step()
        rates.append(optimizer.param_groups[0]["lr"])
        assert engine.get_lr() == [rates[-1]]
    assert rates[0] == 0.25 and rates[1:] == pytest.approx([0.25, 0.3125, 0.375, 0.4375, 0.5])
    optimizer.param_groups[0]["lr"] = 0.0  # what a script writes counts from then on
    before = engine.module.weight.detach().clone()
    engine.backward(engine(torch.ones(2, 4)).sum())
    engine.step()
    assert torch.equal(engine.module.weight, before)


def group_values(engine):
    """Returns what Python shows of the options of the groups, and what the core holds."""
    shown = [{key: value for key, value in group.items() if key != "params"} for group in engine.optimizer.param_groups]
    held = [options for options, _, _ in engine._core.param_groups()]
    as_tuples = [{key: tuple(own[key]) if isinstance(own[key], list) else own[key] for key in core} for own, core in zip(shown, held)]
    return as_tuples, held


# Of each value that Python and the core both have: how a script changes it, how it is read in Python, and in the core.
MIRRORED = {
    "lr": (lambda e: e.optimizer.param_groups[0].update(lr=0.0), lambda e: e.get_lr()[0], lambda e: e._core.get_lr()[0]),
    "weight_decay": (
        lambda e: e.optimizer.param_groups[0].update(weight_decay=0.5),
        lambda e: e.optimizer.param_groups[0]["weight_decay"],
        lambda e: e._core.param_groups()[0][0]["weight_decay"],
    ),
    "betas": (
        lambda e: e.optimizer.param_groups[0].update(betas=(0.5, 0.6)),
        lambda e: tuple(e.optimizer.param_groups[0]["betas"]),
        lambda e: e._core.param_groups()[0][0]["betas"],
    ),
    "eps": (
        lambda e: e.optimizer.param_groups[0].update(eps=0.1),
        lambda e: e.optimizer.param_groups[0]["eps"],
        lambda e: e._core.param_groups()[0][0]["eps"],
    ),
    "the rate of the optimizer below": (
        lambda e: e.basic_optimizer.param_groups[0].update(lr=0.0),
        lambda e: e.basic_optimizer.param_groups[0]["lr"],
        lambda e: e._core.get_lr()[0],
    ),
    "overflow": (
        lambda e: setattr(e.optimizer, "overflow", True),
        lambda e: bool(e.optimizer.overflow),
        lambda e: not e._core.was_step_applied(),
    ),
    "loss scale": (lambda e: micro_step(e, float("inf")), lambda e: e.optimizer.cur_scale, lambda e: e._core.loss_scale()),
    "steps": (lambda e: micro_step(e, 1e-3), lambda e: e.global_steps, lambda e: e._core.global_steps()),
    "skipped steps": (lambda e: micro_step(e, float("inf")), lambda e: e.skipped_steps, lambda e: e._core.skipped_steps()),
    "iteration": (
        lambda e: micro_step(e, 1e-3),
        lambda e: e.lr_scheduler.last_batch_iteration,
        lambda e: e._core.scheduler_state()["last_batch_iteration"],
    ),
}


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("name", MIRRORED)
def test_shows_what_the_engine_holds_after_a_load(name, stage, tmp_path):
    change, shown, held = MIRRORED[name]
    fp16 = {"enabled": True, "initial_scale_power": 8, "hysteresis": 1}
    constant = {"type": "WarmupLR", "params": {"warmup_min_lr": 0.01, "warmup_max_lr": 0.01, "warmup_num_steps": 2}}
    engine, _ = make(fp16=fp16, zero_optimization={"stage": stage}, scheduler=constant)
    micro_step(engine, 1e-3)
    engine.save_checkpoint(tmp_path, tag="now")
    saved = shown(engine), held(engine), group_values(engine)[0]
    change(engine)
    engine.load_checkpoint(tmp_path, tag="now")
    assert (shown(engine), held(engine), group_values(engine)[0]) == saved
    assert group_values(engine)[0] == group_values(engine)[1]
    micro_step(engine, 1e-3)
    assert engine.get_lr() == [0.01] and shown(engine) == held(engine)


@pytest.mark.parametrize("stage", [0, 2, 3])
@pytest.mark.parametrize("client", [False, True])
@pytest.mark.parametrize("how", ["lambda", "cyclic"])
def test_forgets_a_scripts_schedules_first_rate_at_a_load(how, client, stage, tmp_path):
    """The constructor of a torch schedule writes the first rate, and the checkpoint's is there after the load."""

    def schedule_of(optimizer):
        if how == "lambda":
            return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 2))
        return torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=10)

    def make_engine():
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 3)
        config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": stage}}
        own = torch.optim.AdamW(model.parameters(), lr=0.05) if client else None
        if own is None:
            config["optimizer"] = {"type": "AdamW", "params": {"lr": 0.05}}
        schedule = schedule_of(own) if client else schedule_of
        return deepspeed.initialize(model=model, model_parameters=model.parameters(), optimizer=own, lr_scheduler=schedule, config=config)[
            0
        ]

    def steps(engine, count):
        seen = []
        for _ in range(count):
            seen.append((engine.get_lr()[0], tuple(engine.optimizer.param_groups[0]["betas"])))
            loss = engine(torch.ones(2, 4)).square().mean()
            engine.backward(loss)
            engine.step()
            seen.append(loss.item())
        return seen

    engine = make_engine()
    steps(engine, 3)
    engine.save_checkpoint(tmp_path, tag="now")
    expected = steps(engine, 3)
    resumed = make_engine()
    resumed.load_checkpoint(tmp_path, tag="now")
    assert steps(resumed, 3) == expected


@pytest.mark.parametrize("load", [{"load_optimizer_states": False}, {"load_module_only": True}])
def test_leaves_the_scripts_rate_at_a_load_without_the_optimizer(load, tmp_path):
    engine, optimizer = make(zero_optimization={"stage": 1})
    engine.save_checkpoint(tmp_path, tag="now")
    optimizer.param_groups[0]["lr"] = 0.5
    engine.load_checkpoint(tmp_path, tag="now", **load)
    assert optimizer.param_groups[0]["lr"] == 0.5 and engine.get_lr() == engine._core.get_lr() == [0.5]


def test_overwrites_the_scripts_rates_by_calls_that_change_them():
    constant = {"type": "WarmupLR", "params": {"warmup_min_lr": 0.01, "warmup_max_lr": 0.01, "warmup_num_steps": 2}}
    engine, optimizer = make(scheduler=constant)
    group = optimizer.param_groups[0]
    for call in (
        lambda: engine.set_lr(0.01),
        engine.lr_scheduler.step,
        lambda: engine.lr_scheduler.load_state_dict({"last_batch_iteration": 1}),
    ):
        group["lr"], group["weight_decay"] = 0.0, 0.25
        call()
        assert group["lr"] == 0.01 == engine._core.get_lr()[0]
        assert group["weight_decay"] == 0.25 == engine._core.param_groups()[0][0]["weight_decay"]
        group["weight_decay"] = 0.0


@pytest.mark.parametrize("name", ["WarmupDecayLR", "WarmupCosineLR"])
def test_evaluates_with_a_schedule_of_no_steps_and_refuses_the_first_step(name):
    engine, _ = make(scheduler={"type": name, "params": {"total_num_steps": 0, "warmup_num_steps": 0}})
    engine.eval()
    assert engine(torch.ones(2, 4)).shape == (2, 3)
    engine.train()
    weights = engine.module.weight.tolist()
    engine.backward(engine(torch.ones(2, 4)).sum())
    with pytest.raises(UsageError, match="total_num_steps: got 0"):
        engine.step()
    assert engine.module.weight.tolist() == weights and engine.global_steps == 0


@pytest.mark.parametrize("stage", [0, 1, 3])
def test_applies_a_batch_size_that_is_set_within_a_window_to_the_next_one(stage):
    engine, _ = make(zero_optimization={"stage": stage}, gradient_accumulation_steps=2)
    boundaries, samples = [], []
    for micro in range(6):
        engine.backward(engine(torch.ones(2, 4)).sum())
        boundaries.append(engine.is_gradient_accumulation_boundary())
        if micro == 0:
            engine.set_train_batch_size(8)
            assert engine.gradient_accumulation_steps() == 4 and engine.train_batch_size() == 8
        engine.step()
        samples.append(engine.global_samples)
    assert boundaries == [False, True, False, False, False, True] and samples == [0, 4, 4, 4, 4, 12]


@pytest.mark.parametrize("stage", [2, 3])
def test_applies_a_rate_that_is_written_before_a_stepping_backward(stage):
    def train(offload):
        torch.manual_seed(0)
        zero = {"stage": stage, **({"offload_optimizer": {"device": "cpu", "super_offload": True}} if offload else {})}
        engine, optimizer = make(zero_optimization=zero, bf16={"enabled": True}, gradient_clipping=0.0)
        for step in range(3):
            optimizer.param_groups[0]["lr"] = 0.1 / (step + 1)
            engine.backward(engine(torch.ones(2, 4).bfloat16()).float().square().sum())
            engine.step()
        return engine(torch.ones(2, 4).bfloat16()).tolist()

    assert train(True) == train(False)
