"""What errors and warnings of the core say to a script: names as scripts spell them, and each warning once a job."""

import re

import pytest
import torch

import deepspeed
from deepspeed._errors import python_words
from launching import finish, start

CONFIG = {"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "Adam"}, "zero_optimization": {"stage": 3}}
SPELLED_AS_IN_CPP = re.compile(r"\w::\w|->|\{\.")


def initialize(model, **more):
    return deepspeed.initialize(model=model, model_parameters=model.parameters(), config={**CONFIG, **more})[0]


@pytest.mark.parametrize(
    "text, expected",
    [
        ("open a zero::ParameterAccess or zero::GatheredParameters around it", "open a zero.GatheredParameters around it"),
        (
            "without zero::Init (enabled = false), or zero::make_whole(model->parameters())",
            "without zero.Init (enabled=False), or zero.make_whole(model.parameters())",
        ),
        ("zero::Init({.module = model}) and", "zero.Init(module=model) and"),
        ("as torch::load() and Module::to() do, zero::MiCSInit too", "as torch.load() and Module.to() do, zero.MiCS_Init too"),
        ("aten::mm of a/b::c, x -> y, {.5}", "aten::mm of a/b::c, x -> y, {.5}"),
    ],
)
def test_spells_names_as_in_scripts(text, expected):
    assert python_words(text) == expected


def test_tells_a_late_module_names_that_a_script_has():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    engine = initialize(model)
    with deepspeed.zero.Init(config_dict_or_path=CONFIG):
        late = torch.nn.Linear(2, 2)
    model.append(late)
    with pytest.raises(
        deepspeed.UsageError, match="of zero.Init, of sizes .*open a zero.GatheredParameters.*there before initialize"
    ) as error:
        engine(torch.ones(1, 2))
    assert not SPELLED_AS_IN_CPP.search(str(error.value))
    with torch.no_grad():
        engine(torch.ones(1, 2))


def test_tells_a_model_of_init_for_another_stage_a_scripts_way():
    with deepspeed.zero.Init(config_dict_or_path=CONFIG):
        model = torch.nn.Linear(2, 2)
    values = torch.arange(4.0).view(2, 2)
    with deepspeed.zero.GatheredParameters(model.weight, modifier_rank=0), torch.no_grad():
        model.weight.copy_(values)
    with pytest.raises(deepspeed.DeepSpeedError, match=r"zero\.make_whole\(model\.parameters\(\)\)") as error:
        initialize(model, zero_optimization={"stage": 1})
    assert not SPELLED_AS_IN_CPP.search(str(error.value))
    deepspeed.zero.make_whole(model.parameters())
    assert torch.equal(model.weight.data, values)
    initialize(model, zero_optimization={"stage": 1})


ENGINE = """
import deepspeed, torch
deepspeed.init_distributed(dist_backend="gloo")
model = torch.nn.Linear(2, 2)
config = {
    "train_micro_batch_size_per_gpu": 1,
    "my_own_key": 1,
    "disable_allgather": True,
    "optimizer": {"type": "Adam", "torch_adam": True},
    "zero_optimization": {"stage": 1, "offload_param": {"device": "cpu"}, "round_robin_gradients": True, "stage3_max_live_parameters": 7},
}
deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
"""


def test_warns_about_the_config_once_for_each_job(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(ENGINE)
    results = finish(start(program, forked=True))
    assert [status for status, _ in results] == [0, 0], results
    texts = [output for _, output in results]
    for words in ("[config] without effect: ", "'my_own_key' is unknown", "has unknown keys", "has no effect at stage 1"):
        assert [text.count(words) > 0 for text in texts] == [True, False], (words, texts)
