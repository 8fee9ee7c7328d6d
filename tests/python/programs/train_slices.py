"""Trains a model whose layers two ranks share, through an mpu, and the whole model beside it; prints both as one line of JSON."""

import json
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn

import deepspeed
from deepspeed import checkpointing

WIDTH, HIDDEN, STEPS, SAVED_AT = 8, 16, 4, 3


class IntoSlices(torch.autograd.Function):
    """Sums the gradients of the slices."""

    @staticmethod
    def forward(context, x, group):
        context.group = group
        return x.view_as(x)

    @staticmethod
    def backward(context, gradient):
        gradient = gradient.clone()
        dist.all_reduce(gradient, group=context.group)
        return gradient, None


class OutOfSlices(torch.autograd.Function):
    """Sums what the slices compute."""

    @staticmethod
    def forward(context, x, group):
        total = x.clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(context, gradient):
        return gradient, None


class Block(nn.Module):
    def __init__(self, group, number):
        super().__init__()
        self.group, self.norm = group, nn.LayerNorm(WIDTH)
        rank, size = (dist.get_rank(group), dist.get_world_size(group)) if group is not None else (0, 1)
        generator = torch.Generator().manual_seed(number)
        up, down = (torch.empty(shape).normal_(0, 0.3, generator=generator) for shape in ((HIDDEN, WIDTH), (WIDTH, HIDDEN)))
        self.up = nn.Parameter(up.chunk(size, 0)[rank].clone())
        self.down = nn.Parameter(down.chunk(size, 1)[rank].clone())
        for weight in (self.up, self.down):
            weight.model_parallel = True

    def forward(self, x):
        inner = self.norm(x)
        if self.group is not None:
            inner = IntoSlices.apply(inner, self.group)
        output = torch.tanh(inner @ self.up.t()) @ self.down.t()
        return x + (output if self.group is None else OutOfSlices.apply(output, self.group))


class Model(nn.Module):
    def __init__(self, group):
        super().__init__()
        self.blocks = nn.ModuleList(Block(group, number) for number in range(3))

    def forward(self, x):
        for block in self.blocks:
            x = checkpointing.checkpoint(block, x) if block.group is not None else block(x)
        return (x - 1).square().mean()


class Mpu:
    """Has both ranks as one model-parallel group."""

    def __init__(self):
        self.model = dist.new_group([0, 1])
        self.data = [dist.new_group([rank]) for rank in (0, 1)][dist.get_rank()]

    def get_model_parallel_group(self):
        return self.model

    def get_model_parallel_rank(self):
        return dist.get_rank(self.model)

    def get_model_parallel_world_size(self):
        return dist.get_world_size(self.model)

    def get_data_parallel_group(self):
        return self.data

    def get_data_parallel_rank(self):
        return dist.get_rank(self.data)

    def get_data_parallel_world_size(self):
        return dist.get_world_size(self.data)


def batch(step):
    return torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(100 + step))


def plain():
    """Returns losses and norms of the whole model by torch alone."""
    model = Model(None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.0)
    losses, norms = [], []
    for step in range(STEPS):
        loss = model(batch(step))
        loss.backward()
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), 0.05)))
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss))
    return losses, norms


def make_engine(mpu):
    config = {
        "train_batch_size": 4,
        "gradient_clipping": 0.05,
        "zero_optimization": {"stage": 1},
        "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "weight_decay": 0.0, "torch_adam": True}},
    }
    model = Model(mpu.get_model_parallel_group())
    return deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config, mpu=mpu)[0]


def train(engine, first, last):
    losses, norms = [], []
    for step in range(first, last):
        loss = engine(batch(step))
        engine.backward(loss)
        engine.step()
        losses.append(float(loss))
        norms.append(float(engine.get_global_grad_norm()))
    return losses, norms


deepspeed.init_distributed("gloo")
torch.set_num_threads(1)
mpu = Mpu()
checkpointing.configure(mpu, partition_activations=True)
folder = [tempfile.mkdtemp()]
dist.broadcast_object_list(folder, 0)
engine = make_engine(mpu)
losses, norms = train(engine, 0, SAVED_AT)
engine.save_checkpoint(folder[0], tag="saved")
rest = train(engine, SAVED_AT, STEPS)
other = make_engine(mpu)
other.load_checkpoint(folder[0])
resumed, _ = train(other, SAVED_AT, STEPS)
expected, expected_norms = plain()
if dist.get_rank() == 0:
    files = sorted(name for name in os.listdir(os.path.join(folder[0], "saved")) if name.startswith("mp_rank"))
    sizes = [engine.dp_world_size, engine.mp_world_size]
    found = dict(losses=losses + rest[0], norms=norms + rest[1], expected=expected, expected_norms=expected_norms)
    print("RESULT " + json.dumps({**found, "sizes": sizes, "files": files, "resumed": resumed}), flush=True)
