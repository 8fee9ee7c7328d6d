"""A script that mypy checks, and that nobody runs: what an editor shows for the names that scripts use."""

from typing import Any

import torch
from typing_extensions import assert_type

import deepspeed
from deepspeed.accelerator import DeepSpeedAccelerator
from deepspeed.pipe import LayerSpec, PipelineModule
from deepspeed.runtime.dataloader import DeepSpeedDataLoader
from deepspeed.utils import safe_get_full_grad

model = torch.nn.Linear(2, 2)
engine, optimizer, loader, schedule = deepspeed.initialize(
    model=model, model_parameters=model.parameters(), config={"train_batch_size": 1, "optimizer": {"type": "Adam"}}
)
assert_type(engine, deepspeed.DeepSpeedEngine)
assert_type(optimizer, deepspeed.DeepSpeedOptimizer | None)
assert_type(loader, DeepSpeedDataLoader | None)
assert schedule is not None
assert_type(schedule.get_last_lr(), list[Any])  # numbers or tensors

loss = engine(torch.ones(1, 2)).square().mean()
assert_type(engine.backward(loss), torch.Tensor)
engine.step()
assert_type(engine.global_steps, int)
assert_type(engine.get_lr(), list[float])
assert_type(engine.fp16_enabled(), bool)
assert_type(engine.scheduler_name(), str | None)
assert_type(engine.get_batch_info(), tuple[int, int, int])
assert_type(engine.device, torch.device)
assert_type(engine.save_checkpoint("checkpoints", tag="last"), bool)
path, _ = engine.load_checkpoint("checkpoints")
assert_type(path, str | None)
engine.set_lr("fast")  # type: ignore[arg-type]

with deepspeed.zero.Init(config_dict_or_path={"zero_optimization": {"stage": 3}}), deepspeed.OnDevice(torch.float16, "meta"):
    big = torch.nn.Linear(2, 2)
with deepspeed.zero.GatheredParameters(big.weight, modifier_rank=0):
    pass
assert_type(safe_get_full_grad(big.weight), torch.Tensor | None)
assert_type(deepspeed.comm.get_rank(), int)
assert_type(deepspeed.get_accelerator(), DeepSpeedAccelerator)
assert_type(deepspeed.__version__, str)

pipeline = deepspeed.initialize(model=PipelineModule([LayerSpec(torch.nn.Linear, 2, 2)], num_stages=1), config="config.json")[0]
assert_type(pipeline, deepspeed.PipelineEngine)
assert_type(pipeline.train_batch(), torch.Tensor)
with_torch = deepspeed.initialize(
    model=model,
    optimizer=torch.optim.AdamW,
    lr_scheduler=lambda made: torch.optim.lr_scheduler.LambdaLR(made, lambda step: 1.0),
    config="config.json",
)
deepspeed.init_inference(model)  # type: ignore[attr-defined]  # it does not exist here
