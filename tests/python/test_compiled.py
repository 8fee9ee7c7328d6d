"""Models under torch.compile, in one process."""

import pytest
import torch
import torch.nn.functional as F

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
def test_compiled_models_give_the_losses_of_eager_ones(stage):
    graphs = Graphs()
    assert losses_of(stage, graphs) == losses_of(stage) and len(graphs) == 1
    assert losses_of(stage, "aot_eager") == pytest.approx(losses_of(stage), rel=1e-6)


def test_at_stage_3_compile_warns_and_stays_eager(caplog):
    graphs = Graphs()
    losses = losses_of(3, graphs)
    assert [record.message for record in caplog.records if "compile()" in record.message] == [
        "compile(): at stage 3 the module runs eagerly, since compiled kernels cannot gather parameters"
    ]
    assert losses == losses_of(3) and not graphs
