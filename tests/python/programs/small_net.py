"""A small net, its engines, losses and batches."""

import torch
import torch.nn as nn
import torch.nn.functional as F

import deepspeed


class Net(nn.Module):
    """Has a tied weight, so that one parameter serves two modules."""

    def __init__(self, width=24):
        super().__init__()
        self.embed = nn.Embedding(10, width)
        self.inner = nn.Linear(width, width)
        self.outer = nn.Linear(width, 10, bias=False)
        self.outer.weight = self.embed.weight

    def forward(self, tokens):
        return self.outer(torch.tanh(self.inner(self.embed(tokens)))).mean(1)


def make_net(seed=0):
    torch.manual_seed(seed)
    return Net()


def config(stage=3, **more):
    return {
        "train_micro_batch_size_per_gpu": 4,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}},
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
        **more,
    }


def make_engine(stage=3, model=None, **more):
    model = model if model is not None else make_net()
    return deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config(stage, **more))[0]


def batch(step=0):
    generator = torch.Generator().manual_seed(100 * step + deepspeed.comm.get_rank())
    return torch.randint(0, 10, (4, 6), generator=generator), torch.randint(0, 10, (4,), generator=generator)


def step_of(engine, step=0):
    tokens, targets = batch(step)
    loss = F.cross_entropy(engine(tokens), targets)
    engine.backward(loss)
    engine.step()
    return loss.item()


def train(engine, steps=3):
    return [step_of(engine, step) for step in range(steps)]


def average_gradients(model):
    for param in model.parameters():
        torch.distributed.all_reduce(param.grad)
        param.grad /= deepspeed.comm.get_world_size()


def train_plain(model, steps=3):
    """Returns the losses that torch alone gives, with the gradients' mean over the ranks."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    losses = []
    for step in range(steps):
        tokens, targets = batch(step)
        loss = F.cross_entropy(model(tokens), targets)
        optimizer.zero_grad()
        loss.backward()
        average_gradients(model)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # as engines do whose config does not say
        optimizer.step()
        losses.append(loss.item())
    return losses


def expect_close(found, expected, tolerance=1e-6):
    assert len(found) == len(expected), (found, expected)
    assert all(abs(a - b) < tolerance for a, b in zip(found, expected)), (found, expected)
