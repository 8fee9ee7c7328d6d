"""Sections of a config that come in several shapes, or in wrong ones, with an engine."""

import pytest
import torch

import deepspeed
from one_engine import CONFIG, make, step


@pytest.mark.parametrize(
    "section, stage",
    [(True, 1), (False, 0), ({"stage": "2"}, 2), ({"stage": "0"}, 0), ({"stage": 3}, 3)],
)
def test_older_shapes_of_the_stage_are_read(section, stage):
    engine = make({**CONFIG, "zero_optimization": section})[0]
    assert engine.zero_optimization_stage() == stage
    step(engine)


@pytest.mark.parametrize("key, value", [("optimizer", None), ("optimizer", 5), ("zero_optimization", 5), ("bf16", "x")])
def test_sections_of_a_wrong_kind_are_errors_that_name_them(key, value):
    with pytest.raises(deepspeed.ConfigError, match=f"{key}: got .*, expected an object"):
        make({**CONFIG, key: value})


def test_bfloat16_is_another_name_of_bf16():
    engine = make({**CONFIG, "bfloat16": {"enabled": True}})[0]
    assert engine.bfloat16_enabled() and next(engine.module.parameters()).dtype == torch.bfloat16
    step(engine, torch.ones(2, 4, dtype=torch.bfloat16))


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_autocast_takes_a_model_that_the_script_has_converted(stage):
    def losses(section):
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 3).to(torch.bfloat16)
        engine = make({**CONFIG, "zero_optimization": {"stage": stage}, "torch_autocast": section}, model)[0]
        return engine, [step(engine, torch.ones(2, 4, dtype=torch.bfloat16)) for _ in range(3)]

    engine, found = losses({"enabled": True, "dtype": "bfloat16"})
    assert next(engine.module.parameters()).dtype == torch.bfloat16 and engine.torch_autocast_enabled()
    assert found == losses({"enabled": False})[1] and found[2] < found[0]


def test_classes_that_autocast_is_to_mark_must_exist():
    def marked(*names):
        section = {"enabled": True, "dtype": "bfloat16", "lower_precision_safe_modules": list(names)}
        engine = make({**CONFIG, "zero_optimization": {"stage": 1}, "torch_autocast": section})[0]
        return [hasattr(param, "comm_dtype") for param in engine.module.parameters()]

    assert marked("torch.nn.Linear") == marked("torch.nn.modules.linear.Linear") == [True, True]
    assert marked("torch.nn.Conv2d") == [False, False]
    for name in ("torch.nn.Nope", "nowhere.Linear", "Linear"):
        with pytest.raises(ValueError, match=f"Failed to import lower precision safe module {name}"):
            marked(name)
