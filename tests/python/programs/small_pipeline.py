"""A small pipeline of linear layers on two stages, its engines, batches and losses."""

import torch
import torch.nn as nn
import torch.nn.functional as F

import deepspeed
from deepspeed.pipe import PipelineModule

WIDTH, ROWS = 6, 4


def make_engine(layers, loss_fn=F.mse_loss, gas=2, kind=PipelineModule, stages=2, config=None, **more):
    torch.manual_seed(3)
    options = {"partition_method": "uniform", **more}
    given = {key: options.pop(key) for key in ("training_data", "optimizer", "lr_scheduler") if key in options}
    model = kind(layers=layers, num_stages=stages, loss_fn=loss_fn, **options)
    settings = {"train_micro_batch_size_per_gpu": ROWS, "gradient_accumulation_steps": gas, "steps_per_print": 1000, **(config or {})}
    if "optimizer" not in given:
        settings["optimizer"] = {"type": "SGD", "params": {"lr": 0.1}}
    settings.setdefault("zero_allow_untested_optimizer", True)
    return deepspeed.initialize(model=model, model_parameters=[*model.parameters()], config=settings, **given)[0]


def linears(count=4):
    torch.manual_seed(5)
    return [nn.Linear(WIDTH, WIDTH) for _ in range(count)]


def batches(count):
    for number in range(count):
        generator = torch.Generator().manual_seed(number)
        yield torch.randn(ROWS, WIDTH, generator=generator), torch.randn(ROWS, WIDTH, generator=generator)


def mean_loss(function, count, loss_fn=F.mse_loss):
    with torch.no_grad():
        return sum(loss_fn(function(inputs), labels).item() for inputs, labels in batches(count)) / count


def expect_close(found, expected):
    assert abs(found - expected) <= 1e-5 * abs(expected), (found, expected)


def expect_error(kind, function, *words):
    try:
        function()
    except kind as error:
        assert all(word in str(error) for word in words), error
        return error
    raise AssertionError(f"no {kind} came")
