"""What a script sees of updates: whether the last one overflowed, and the first rate of a warm-up."""

import pytest
import torch

import deepspeed


def make(**config):
    model = torch.nn.Linear(4, 3)
    config = {"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}, **config}
    return deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[:2]


def micro_step(engine, factor):
    loss = engine(torch.ones(2, 4).half()).float().sum() * factor
    engine.backward(loss)
    engine.step()


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_overflow_stays_what_the_last_update_was(stage):
    engine, optimizer = make(gradient_accumulation_steps=2, fp16={"enabled": True}, zero_optimization={"stage": stage})
    seen = []
    for factor in (1.0, 1.0, 1.0, float("inf"), 1.0, 1.0, 1.0):
        micro_step(engine, 1e-3 if factor == 1.0 else factor)
        seen.append(bool(optimizer.overflow))
    assert seen == [False, False, False, True, True, False, False]
    assert engine.skipped_steps == 1 and engine.global_steps == 3


@pytest.mark.parametrize("gas", [1, 2])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_a_batch_that_is_dropped_before_the_step_is_one_of_zeros(stage, gas):
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


def test_the_first_look_at_the_groups_keeps_the_rate_of_the_warm_up():
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
