"""A small engine for tests in one process: its config, how it is made, a step of it."""

import torch
import torch.nn.functional as F

import deepspeed

CONFIG = {
    "train_micro_batch_size_per_gpu": 2,
    "optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
}


def make(config=None, model=None, **arguments):
    model = model if model is not None else torch.nn.Linear(4, 3)
    if "optimizer" not in arguments:
        arguments.setdefault("model_parameters", model.parameters())
    return deepspeed.initialize(model=model, config=config if config is not None else CONFIG, **arguments)


def step(engine, inputs=None):
    loss = F.mse_loss(engine(torch.ones(2, 4) if inputs is None else inputs).float(), torch.zeros(2, 3))
    engine.backward(loss)
    engine.step()
    return loss.item()
