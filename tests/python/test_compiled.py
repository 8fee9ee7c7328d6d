"""Models under torch.compile, in one process."""

import contextlib
import itertools

import pytest
import torch
import torch.nn.functional as F

import deepspeed
from one_engine import CONFIG, make, step


class TwoLayers(torch.nn.Module):
    """Is a class of the test's own: torch itself does not compile a bare nn.Sequential."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 8), torch.nn.Linear(8, 3)

    def forward(self, inputs):
        return self.second(F.gelu(self.first(inputs)))


def losses_of(stage, backend=None):
    torch.manual_seed(0)
    engine = make({**CONFIG, "zero_optimization": {"stage": stage}}, model=TwoLayers())[0]
    if backend is not None:
        engine.compile(backend=backend)
    assert engine.is_compiled == (backend is not None)
    return [step(engine) for _ in range(4)]


class Graphs(list):
    """Is a backend that keeps the graphs it was given."""

    def __call__(self, graph, inputs):
        self.append(graph)
        return graph.forward


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_gives_compiled_models_the_losses_of_eager_ones(stage):
    graphs = Graphs()
    assert losses_of(stage, graphs) == losses_of(stage) and len(graphs) == 1
    assert losses_of(stage, "aot_eager") == pytest.approx(losses_of(stage), rel=1e-6)


def test_warns_and_stays_eager_at_stage_3(caplog):
    graphs = Graphs()
    losses = losses_of(3, graphs)
    assert [record.message for record in caplog.records if "compile()" in record.message] == [
        "compile(): at stage 3 the module runs eagerly, since compiled kernels cannot gather parameters"
    ]
    assert losses == losses_of(3) and not graphs


def trained_weights(engine, call):
    for number in range(2):
        batch = torch.randn(2, 4, generator=torch.Generator().manual_seed(number))
        engine.backward(call(batch).square().sum())
        engine.step()
    with deepspeed.zero.GatheredParameters(list(engine.module.parameters())):
        return [param.detach().clone() for param in engine.module.parameters()]


class Scaled(TwoLayers):
    """Has a parameter of its own beside those of its parts."""

    def __init__(self):
        super().__init__()
        self.factor = torch.nn.Parameter(torch.full((3,), 0.5))

    def forward(self, inputs):
        return super().forward(inputs) * self.factor


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("how", ["model", "engine", "engine.compile"])
def test_trains_as_eager_in_every_way_to_compile(stage, how):
    def train(how):
        torch._dynamo.reset()
        torch.manual_seed(0)
        model = Scaled()
        if how == "model":
            model = torch.compile(model, backend="aot_eager")
        settings = {"stage": stage, "stage3_param_persistence_threshold": 0}
        engine = make({**CONFIG, "zero_optimization": settings}, model=model)[0]
        if how == "engine.compile":
            engine.compile(backend="aot_eager")
        weights = trained_weights(engine, torch.compile(engine, backend="aot_eager") if how == "engine" else engine)
        engine.destroy()
        return weights

    torch.testing.assert_close(train(how), train("eager"), rtol=1e-6, atol=1e-7)


class Recomputed(TwoLayers):
    def __init__(self, checkpoint):
        super().__init__()
        self.checkpoint = checkpoint

    def forward(self, inputs):
        return self.second(self.checkpoint(lambda hidden: F.dropout(F.gelu(self.first(hidden)), 0.5), inputs))


@pytest.mark.parametrize("stage", [None, 0, 1, 3])
@pytest.mark.parametrize("name", ["checkpoint", "non_reentrant_checkpoint"])
def test_keeps_recomputed_regions_out_of_compiled_graphs(stage, name):
    def gradient_of(checkpoint, is_compiled):
        torch._dynamo.reset()
        torch.manual_seed(0)
        model = Recomputed(checkpoint)
        call = model
        if stage is not None:
            call = make({**CONFIG, "zero_optimization": {"stage": stage}}, model=model)[0]
        if is_compiled:
            call.compile(backend="aot_eager")
        inputs = torch.ones(2, 4, requires_grad=True)
        torch.manual_seed(5)
        loss = call(inputs).square().sum()
        call.backward(loss) if stage is not None else loss.backward()
        return inputs.grad

    expected = gradient_of(lambda function, inputs: function(inputs), False)
    torch.testing.assert_close(gradient_of(getattr(deepspeed.checkpointing, name), True), expected, rtol=1e-6, atol=1e-7)


def test_keeps_a_compiled_layer_compiled_in_a_recomputed_region():
    torch.manual_seed(0)
    graphs, layer = Graphs(), torch.nn.Linear(4, 4)
    compiled = torch.compile(lambda inputs: torch.tanh(layer(inputs)), backend=graphs)
    inputs = torch.ones(2, 4, requires_grad=True)
    deepspeed.checkpointing.checkpoint(compiled, inputs).sum().backward()
    assert len(graphs) >= 1
    expected = torch.autograd.grad(torch.tanh(layer(inputs)).sum(), inputs)[0]
    torch.testing.assert_close(inputs.grad, expected)


# An engine without ZeRO refuses loss.backward().
@pytest.mark.parametrize(("stage", "is_direct"), [(0, False), *itertools.product([1, 2, 3], [False, True])])
def test_turns_compiled_autograd_off_for_an_engine_and_on_again(stage, is_direct, caplog):
    from torch._dynamo import compiled_autograd

    from deepspeed.runtime.uncompiled import warn_of_compiled_autograd

    warn_of_compiled_autograd.cache_clear()

    def train(context):
        torch.manual_seed(0)
        engine = make({**CONFIG, "zero_optimization": {"stage": stage}}, model=TwoLayers())[0]
        for _ in range(2):
            with context():
                loss = engine(torch.ones(2, 4)).square().sum()
                loss.backward() if is_direct else engine.backward(loss)
            engine.step()
        with deepspeed.zero.GatheredParameters(list(engine.module.parameters())):
            return [param.detach().clone() for param in engine.module.parameters()]

    graphs = Graphs()
    torch._dynamo.reset()
    weights = train(lambda: compiled_autograd._enable(torch.compile(backend=graphs)))
    assert not graphs and sum("compiled autograd is off" in record.message for record in caplog.records) == 1
    with compiled_autograd._enable(torch.compile(backend=graphs)):
        torch.ones(3, requires_grad=True).square().sum().backward()
    assert graphs, "another context has it again"
    torch.testing.assert_close(weights, train(contextlib.nullcontext), rtol=0, atol=0)
