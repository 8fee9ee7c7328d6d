"""Finds the largest eigenvalue of each layer's Hessian, by power iteration. It needs gradients that were computed with create_graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch

from deepspeed.utils.logging import log_dist

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from deepspeed._types import Event


class Eigenvalue:
    """Reads the layers `module.<layer_name>[0 .. layer_num - 1]` after backward(create_graph=True).

    max_iter, tol: power iteration ends after max_iter products, or when the value's relative change is below tol. stability: added to the
    norm by which a vector is divided. verbose: logs one line for each layer.
    """

    def __init__(
        self,
        verbose: bool = False,
        max_iter: int = 100,
        tol: float = 1e-2,
        stability: float = 0,
        gas_boundary_resolution: int = 1,
        layer_name: str = "",
        layer_num: int = 0,
    ) -> None:
        assert layer_name and layer_num > 0, f"layer_name, layer_num: got {layer_name!r}, {layer_num}, expected a name and 1 or more"
        self.verbose = verbose
        self.max_iter = max_iter
        self.tol = tol
        self.stability = stability
        self.gas_boundary_resolution = gas_boundary_resolution
        self.layer_name = layer_name
        self.layer_num = layer_num

    def get_layers(self, module: torch.nn.Module) -> Any:
        """Returns the module's attribute that `layer_name` names, which may contain dots."""
        return module.get_submodule(self.layer_name)

    def compute_eigenvalue(
        self, module: torch.nn.Module, device: torch.device | str | None = None, scale: float = 1.0
    ) -> dict[int, tuple[float, int]]:
        """Returns {id of a parameter: (its layer's eigenvalue relative to the largest, number of the layer)}.

        Values are divided by `scale`, by which the loss was multiplied. Returns {} if a layer has no gradient with a graph.
        """
        layers = [self.get_layers(module)[index] for index in range(self.layer_num)]
        values = []
        for index, layer in enumerate(layers):
            params = [param for param in layer.parameters() if param.grad is not None and param.grad.grad_fn is not None]
            if not params:
                log_dist("The model does not support eigenvalues: run backward(create_graph=True)", ranks=[0])
                return {}
            values.append(self._of_layer(params, device, scale))
            if self.verbose:
                log_dist(f"layer {index}: eigenvalue {values[-1]}", ranks=[0])
        found = {}
        for index, (layer, value) in enumerate(zip(layers, self.post_process(values))):
            found.update({id(param): (value, index) for param in layer.parameters()})
        return found

    def _of_layer(self, params: Sequence[torch.Tensor], device: torch.device | str | None, scale: float) -> float:
        with torch.random.fork_rng():  # leaves the program's random numbers unchanged
            vectors = self.normalize([torch.randn(param.shape, device=device or param.device) for param in params])
        gradients = [param.grad for param in params if param.grad is not None]
        value, previous = 1.0, 0.0
        for _ in range(self.max_iter):
            if value == 0 or abs((value - previous) / value) < self.tol:
                break
            like = [vector.to(gradient.dtype) for vector, gradient in zip(vectors, gradients)]
            raw = torch.autograd.grad(gradients, params, grad_outputs=like, retain_graph=True)
            products = [self.nan_to_num(product).float() / scale for product in raw]
            previous, value = value, self.inner_product(products, vectors).item()
            vectors = self.normalize(products)
        return value

    def inner_product(self, xs: Iterable[torch.Tensor], ys: Iterable[torch.Tensor]) -> torch.Tensor:
        return cast(torch.Tensor, sum((x * y).sum() for x, y in zip(xs, ys)))

    def normalize(self, vectors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        norm = self.inner_product(vectors, vectors).sqrt() + self.stability
        return [self.nan_to_num(vector / norm) for vector in vectors]

    def nan_to_num(self, x: torch.Tensor) -> torch.Tensor:
        """Returns x with zeros in place of infinities and nans."""
        return torch.nan_to_num(x, nan=0.0, posinf=0.0, neginf=0.0)

    def post_process(self, values: Sequence[float]) -> list[float]:
        """Returns absolute values relative to the largest; 1 for layers without a value."""
        greatest = max(map(abs, values))
        return [abs(value) / greatest if value else 1.0 for value in values]


def summary_events(block_eigenvalue: Mapping[int, tuple[float, int]], global_samples: int) -> list[Event]:
    """Returns (name, value, samples) of each entry of compute_eigenvalue()'s result, for monitors."""
    values = [value for value, _ in block_eigenvalue.values()]
    return [(f"Train/Eigenvalues/ModelBlockParam_{index}", value, global_samples) for index, value in enumerate(values)]
