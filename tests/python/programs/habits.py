"""Trains a small model while its script does something odd, which the argument names; prints losses on every rank.

habits.py '{"stage": 2, "habit": "backward", "gas": 1}'
"""

import json
import sys

import torch
import torch.nn.functional as F

import deepspeed


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 16), torch.nn.Linear(16, 3)
        self.fails_in = None

    def forward(self, inputs):
        hidden = self.first(inputs).relu()
        if self.fails_in == "forward":
            raise RuntimeError("the script's own")
        if self.fails_in == "backward":  # the gradients of the second layer are there already
            hidden.register_hook(fail)
        return self.second(hidden)


def fail(gradient):
    raise RuntimeError("the script's own")


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        return torch.arange(4.0) + index % 5, torch.ones(3) * (index % 3)


def make_engine(stage, gas=1, model=None):
    if model is None:
        torch.manual_seed(0)
        model = Net()
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": gas,
        "optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
        "zero_optimization": {"stage": stage},
    }
    if stage == 3:
        config["zero_optimization"]["stage3_param_persistence_threshold"] = 0
    return deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]


def micro_step(engine, inputs, targets, is_direct=False):
    loss = F.mse_loss(engine(inputs), targets)
    loss.backward() if is_direct else engine.backward(loss)
    engine.step()
    return loss.item()


def fail_once(engine, batch, place, is_direct=False):
    engine.module.fails_in = place
    try:
        micro_step(engine, *batch, is_direct=is_direct)
    except RuntimeError as error:
        assert "the script's own" in str(error), error
    else:
        raise AssertionError("nothing failed")
    engine.module.fails_in = None


def evaluate(engine, batch):
    engine.eval()
    with torch.no_grad():
        engine(batch[0])
    engine.train()


def new_engine(engine, stage, gas):
    """Ends an engine by forgetting it; returns a new one on the same module. Both begin without any momentum."""
    model = engine.module
    del engine
    return make_engine(stage, gas, model)


def train(stage, gas=1, habit=None, workers=0):
    """Returns the losses; before the micro step 2 the habit happens."""
    engine = make_engine(stage, gas)
    sampler = torch.utils.data.DistributedSampler(Numbers(), shuffle=False)
    losses = []
    for index, batch in enumerate(torch.utils.data.DataLoader(Numbers(), batch_size=2, sampler=sampler, num_workers=workers)):
        if index == 2 and habit in ("forward", "backward"):
            fail_once(engine, batch, habit)
        if habit == "eval":
            evaluate(engine, batch)
        if index == 2 and habit == "forgotten":
            engine = new_engine(engine, stage, gas)
        if index == 2 and habit == "destroyed":
            engine.destroy()
            engine = new_engine(engine, stage, gas)
        losses.append(micro_step(engine, *batch))
    return losses


def main():
    options = json.loads(sys.argv[1])
    deepspeed.init_distributed(dist_backend="gloo")
    result = [train(**each) for each in options]
    if deepspeed.comm.get_rank() == 0:
        print("RESULT " + json.dumps(result), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
