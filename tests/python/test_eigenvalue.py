"""Eigenvalues of layers, against those of Hessians that are known."""

import pytest
import torch

from deepspeed.runtime.eigenvalue import Eigenvalue, summary_events


class Quadratic(torch.nn.Module):
    """Has the loss x A x / 2 of each layer, whose Hessian is A."""

    def __init__(self, matrices):
        super().__init__()
        self.matrices = matrices
        self.layers = torch.nn.ModuleList([torch.nn.ParameterList([torch.nn.Parameter(torch.ones(len(a)))]) for a in matrices])

    def forward(self):
        return sum(0.5 * layer[0] @ a @ layer[0] for layer, a in zip(self.layers, self.matrices))


def test_finds_the_largest_eigenvalue_of_each_layer():
    model = Quadratic([torch.diag(torch.tensor([1.0, 8.0])), torch.diag(torch.tensor([2.0, -0.5, 1.0]))])
    scale = 64.0
    params = list(model.parameters())
    for param, gradient in zip(params, torch.autograd.grad(scale * model(), params, create_graph=True)):
        param.grad = gradient
    before = torch.random.get_rng_state()
    found = Eigenvalue(tol=1e-6, layer_name="layers", layer_num=2).compute_eigenvalue(model, scale=scale)
    assert torch.equal(torch.random.get_rng_state(), before)
    first, second = (found[id(layer[0])] for layer in model.layers)
    assert first == (pytest.approx(1.0), 0) and second == (pytest.approx(0.25, rel=1e-3), 1)
    assert summary_events(found, 32)[1] == ("Train/Eigenvalues/ModelBlockParam_1", second[0], 32)


def test_returns_none_without_a_graph():
    model = Quadratic([torch.eye(2)])
    model().backward()
    assert Eigenvalue(layer_name="layers", layer_num=1).compute_eigenvalue(model) == {}
    with pytest.raises(AssertionError, match="layer_num: got 'layers', 0"):
        Eigenvalue(layer_name="layers", layer_num=0)
