"""Trains by Accelerate as tests/accelerate/program/trainer.cpp does in C++: `accelerate_twin.py train|resume CASES FOLDER`."""

import json
import os
import sys

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from accelerate.utils import DataLoaderConfiguration, DeepSpeedPlugin, DummyOptim, DummyScheduler, InitProcessGroupKwargs
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Dataset

import deepspeed


class Net(torch.nn.Module):
    class config:
        hidden_size = 16

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(8, 16)
        self.second = torch.nn.Linear(16, 1)
        with torch.no_grad():
            for index, parameter in enumerate(self.parameters()):
                values = torch.sin(torch.arange(parameter.numel(), dtype=torch.float64) * 0.37 + float(index)) * 0.3
                parameter.copy_(values.view(parameter.shape))

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


class Samples(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        x = torch.sin(torch.arange(8, dtype=torch.float64) * 0.5 + float(index))
        return x.float(), (x.sum() * 0.1).float()


class Counter:
    def __init__(self):
        self.value = 7

    def state_dict(self):
        return {"value": self.value}

    def load_state_dict(self, state):
        self.value = state["value"]


def linear(optimizer, warmup, total):
    def factor(step):
        return step / max(1, warmup) if step < warmup else max(0.0, (total - step) / max(1, total - warmup))

    return LambdaLR(optimizer, factor)


def train(accelerator, model, optimizer, scheduler, loader):
    losses = []
    for x, y in loader:
        with accelerator.accumulate(model):
            dtype = next(model.parameters()).dtype
            loss = torch.nn.functional.mse_loss(model(x.to(dtype)).squeeze(1).float(), y)
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        losses.append(accelerator.reduce(loss.detach(), "mean").item())
    return losses


def run(mode, case, folder):
    AcceleratorState._reset_state()
    GradientState._reset_state()
    os.environ.pop("ACCELERATE_USE_DEEPSPEED", None)
    plugin = DeepSpeedPlugin(hf_ds_config=case["config"])
    accelerator = Accelerator(
        mixed_precision=case["precision"],
        gradient_accumulation_steps=case["gas"],
        dataloader_config=DataLoaderConfiguration(split_batches=case["split"], use_seedable_sampler=True, data_seed=5),
        deepspeed_plugin=plugin,
        kwargs_handlers=[InitProcessGroupKwargs(backend="gloo")],
    )
    net = Net()
    shuffled = DataLoader(Samples(case["samples"]), batch_size=4, shuffle=True)
    plain = DataLoader(Samples(20), batch_size=4)
    kind, total = case["kind"], case["total"]
    if kind.startswith("own"):
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2, weight_decay=0.01)
    else:
        optimizer = DummyOptim(net.parameters(), lr=1e-2, weight_decay=0.01)
    if kind == "own, own":
        scheduler = linear(optimizer, 2, total)
    elif kind.endswith("config"):
        scheduler = DummyScheduler(optimizer, total_num_steps=total, warmup_num_steps=2)
    else:
        scheduler = DummyScheduler(optimizer, lr_scheduler_callable=lambda made: linear(made, 2, total))
    model, optimizer, scheduler, shuffled, plain = accelerator.prepare(net, optimizer, scheduler, shuffled, plain)
    counter = Counter()
    accelerator.register_for_checkpointing(counter)
    result = {"name": case["name"]}
    saved = os.path.join(folder, case["file"])
    if mode == "train":
        result["before"] = train(accelerator, model, optimizer, scheduler, shuffled)
        accelerator.save_state(saved)
        accelerator.wait_for_everyone()
    else:
        counter.value = 0
        accelerator.load_state(saved)
    result["counter"] = counter.value
    result["lr"] = scheduler.get_last_lr()
    result["after"] = train(accelerator, model, optimizer, scheduler, plain)
    result["config"] = repr(plugin.deepspeed_config)
    accelerator.free_memory()
    return result


def main():
    mode, cases, folder = sys.argv[1:4]
    deepspeed.init_distributed("gloo")
    with open(cases) as file:
        for case in json.load(file):
            result = run(mode, case, folder)
            if int(os.environ["RANK"]) == 0:
                print(json.dumps(result), flush=True)


main()
