"""Sections of a config that come in several shapes, or in wrong ones, with an engine; and as models of pydantic."""

import json
import pathlib
import re

import pytest
import torch
from pydantic import BaseModel

import deepspeed
from deepspeed.comm.config import CommsLoggerConfig
from deepspeed.monitor.config import CometConfig, CSVConfig, TensorBoardConfig, WandbConfig
from deepspeed.runtime.precision_config import DeepSpeedBF16Config, DeepSpeedFP16Config
from deepspeed.runtime.zero.config import DeepSpeedZeroConfig
from deepspeed.runtime.zero.leaf_module_config import DeepSpeedZeroLeafModuleConfig
from deepspeed.runtime.zero.offload_config import DeepSpeedZeroOffloadOptimizerConfig, DeepSpeedZeroOffloadParamConfig
from one_engine import CONFIG, make, step


@pytest.mark.parametrize(
    "section, stage",
    [(True, 1), (False, 0), ({"stage": "2"}, 2), ({"stage": "0"}, 0), ({"stage": 3}, 3)],
)
def test_reads_older_shapes_of_the_stage(section, stage):
    engine = make({**CONFIG, "zero_optimization": section})[0]
    assert engine.zero_optimization_stage() == stage
    step(engine)


@pytest.mark.parametrize("key, value", [("optimizer", None), ("optimizer", 5), ("zero_optimization", 5), ("bf16", "x")])
def test_names_sections_of_a_wrong_type(key, value):
    with pytest.raises(deepspeed.ConfigError, match=f"{key}: got .*, expected an object"):
        make({**CONFIG, key: value})


def test_reads_bfloat16_as_bf16():
    engine = make({**CONFIG, "bfloat16": {"enabled": True}})[0]
    assert engine.bfloat16_enabled() and next(engine.module.parameters()).dtype == torch.bfloat16
    step(engine, torch.ones(2, 4, dtype=torch.bfloat16))


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_accepts_a_model_for_autocast_that_the_script_has_converted(stage):
    def losses(section):
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 3).to(torch.bfloat16)
        engine = make({**CONFIG, "zero_optimization": {"stage": stage}, "torch_autocast": section}, model)[0]
        return engine, [step(engine, torch.ones(2, 4, dtype=torch.bfloat16)) for _ in range(3)]

    engine, found = losses({"enabled": True, "dtype": "bfloat16"})
    assert next(engine.module.parameters()).dtype == torch.bfloat16 and engine.torch_autocast_enabled()
    assert found == losses({"enabled": False})[1] and found[2] < found[0]


def test_refuses_unknown_classes_for_autocast_to_mark():
    def marked(*names):
        section = {"enabled": True, "dtype": "bfloat16", "lower_precision_safe_modules": list(names)}
        engine = make({**CONFIG, "zero_optimization": {"stage": 1}, "torch_autocast": section})[0]
        return [hasattr(param, "comm_dtype") for param in engine.module.parameters()]

    assert marked("torch.nn.Linear") == marked("torch.nn.modules.linear.Linear") == [True, True]
    assert marked("torch.nn.Conv2d") == [False, False]
    for name in ("torch.nn.Nope", "nowhere.Linear", "Linear"):
        with pytest.raises(ValueError, match=f"Failed to import lower precision safe module {name}"):
            marked(name)


OPTIONS = pathlib.Path(__file__).resolve().parents[1] / "golden" / "config_options.txt"
MODELS = {
    "zero_optimization": DeepSpeedZeroConfig,
    "zero_optimization.offload_param": DeepSpeedZeroOffloadParamConfig,
    "zero_optimization.offload_optimizer": DeepSpeedZeroOffloadOptimizerConfig,
    "zero_optimization.leaf_module": DeepSpeedZeroLeafModuleConfig,
    "fp16": DeepSpeedFP16Config,
    "bf16": DeepSpeedBF16Config,
    "tensorboard": TensorBoardConfig,
    "csv_monitor": CSVConfig,
    "wandb": WandbConfig,
    "comet": CometConfig,
    "comms_logger": CommsLoggerConfig,
}
MOVED = {"cpu_offload", "cpu_offload_param", "cpu_offload_use_pin_memory"}  # None in the models: not given
CHOSEN_LATER = {"classes"}  # Transformers' block classes in the model, in the core those that the model has


@pytest.mark.parametrize("section", MODELS)
def test_gives_a_sections_model_the_cores_keys_and_defaults(section):
    keys = {}
    for line in OPTIONS.read_text().splitlines():
        path, _, text = line.partition(": ")
        if path.rpartition(".")[0] == section:
            default = re.search(r"default (\S+?)(;|$)", text)
            keys[path.rpartition(".")[2]] = json.loads(default[1]) if default else None
    model = MODELS[section]()
    fields = {field.alias or name: getattr(model, name) for name, field in type(model).model_fields.items()}
    assert fields.keys() == keys.keys()
    for key in keys.keys() - MOVED - CHOSEN_LATER:
        if not isinstance(fields[key], BaseModel):
            assert fields[key] == keys[key] or key == "overlap_comm", key
