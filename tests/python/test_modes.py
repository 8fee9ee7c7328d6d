"""train() and eval() of an engine: each part of the module is told, once, and forward follows."""

import pytest
import torch

import deepspeed


class Told(torch.nn.Module):
    """Counts what it is told, as modules do that keep a part in evaluation."""

    def __init__(self):
        super().__init__()
        self.calls = []
        self.dropout, self.frozen = torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(4)
        self.linear = torch.nn.Linear(4, 3)

    def train(self, mode=True):
        self.calls.append(mode)
        super().train(mode)
        self.frozen.eval()
        return self

    def forward(self, inputs):
        return self.linear(self.dropout(self.frozen(inputs)))


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_sets_modes_of_modules_once(stage):
    model = Told()
    config = {"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "Adam"}, "zero_optimization": {"stage": stage}}
    engine = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]
    inputs = torch.ones(64, 4)
    for call, mode in (
        (engine.eval, False),
        (engine.train, True),
        (lambda: engine.train(False), False),
        (lambda: engine.train(True), True),
    ):
        model.calls.clear()
        assert call() is engine and model.calls == [mode]
        assert engine.training == model.training == model.dropout.training == mode and not model.frozen.training
        assert torch.equal(engine(inputs), engine(inputs)) == (not mode)
