"""How a forward of Python is taken apart for the core's graphs. A scope that notes its calls stands for those of a GPU."""

import collections

import pytest
import torch

import deepspeed
from deepspeed.runtime.engine_parts.graphed_call import run_graphed

Answer = collections.namedtuple("Answer", "loss rest")


class Scope:
    """Runs the first call of each shape, and afterwards its function again on the tensors of the later ones."""

    def __init__(self):
        self.captured = {}

    def run_graphed(self, tensors, rest, call):
        shape = (rest, tuple(tensor.shape for tensor in tensors))
        if shape not in self.captured:
            self.captured[shape] = (call, call(tensors)[1])
        call, frame = self.captured[shape]
        return call(tensors)[0], frame


def run(inputs, kwargs):
    (pair, factor), mask = inputs, kwargs["mask"]
    loss = (pair["x"] * factor * mask).sum()
    return Answer(loss, [pair["y"] + 1, "text", 3, None])


def call(scope, x, factor=2.0):
    ones = torch.ones(3)
    return run_graphed(scope, run, [{"x": x, "y": ones}, factor], {"mask": ones})


def test_returns_tensors_in_the_forwards_containers():
    scope = Scope()
    for value in range(3):
        answer = call(scope, torch.full((3,), float(value)))
        assert isinstance(answer, Answer) and answer.loss == 6 * value
        assert torch.equal(answer.rest[0], torch.full((3,), 2.0)) and answer.rest[1:] == ["text", 3, None]
    assert len(scope.captured) == 1


def test_makes_another_graph_for_another_number_or_container():
    scope = Scope()
    assert call(scope, torch.ones(3)).loss == 6
    assert call(scope, torch.ones(3), factor=1.0).loss == 3
    assert call(scope, torch.ones(1)).loss == 6
    assert len(scope.captured) == 3


def test_keeps_no_tensor_of_a_forward():
    scope = Scope()
    call(scope, torch.ones(3))
    ((_, frame),) = scope.captured.values()
    assert not any(isinstance(leaf, torch.Tensor) for leaf in frame[0])


class Opaque:
    pass


def test_refuses_values_that_may_hide_tensors():
    with pytest.raises(deepspeed.UsageError, match=r"forward\(\) takes a Opaque.*cuda_graphs.enabled"):
        run_graphed(Scope(), run, [Opaque()], {})
    with pytest.raises(deepspeed.UsageError, match=r"forward\(\) returns a Opaque.*use_cache=False"):
        run_graphed(Scope(), lambda inputs, kwargs: (inputs[0], Opaque()), [torch.ones(1)], {})


@pytest.mark.parametrize(("section", "why"), [({}, "a model on cpu"), ({"zero_optimization": {"stage": 3}}, "at stage 3")])
def test_refuses_a_config_that_cannot_have_graphs(section, why):
    config = {"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "Adam"}, "cuda_graphs": {"enabled": True}, **section}
    with pytest.raises(deepspeed.ConfigError, match=f"cuda_graphs.enabled: got true.*{why}"):
        deepspeed.initialize(model=torch.nn.Linear(2, 2), config=config)
