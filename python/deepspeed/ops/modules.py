"""Modules of torch for the fused operators that have parameters. The parameters have the names of torch's own modules."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import torch

from deepspeed.ops import functional

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Embedding", "LayerNorm", "LinearCrossEntropy", "RMSNorm", "RotaryEmbedding"]


class LayerNorm(torch.nn.Module):
    """Applies layer_norm() with a weight and a bias, [size], that start as ones and zeros.

    With a residual it returns (norm, sum).
    """

    def __init__(self, size: int, eps: float = 1e-5, device: Any = None, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.eps = eps
        self.weight = torch.nn.Parameter(torch.ones(size, device=device, dtype=dtype))
        self.bias = torch.nn.Parameter(torch.zeros(size, device=device, dtype=dtype))

    def forward(self, input: Tensor, residual: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        if residual is None:
            return functional.layer_norm(input, self.weight, self.bias, self.eps)
        return functional.add_layer_norm(input, residual, self.weight, self.bias, self.eps)


class RMSNorm(torch.nn.Module):
    """Applies rms_norm() with a weight, [size], that starts as ones. With a residual it returns (norm, sum)."""

    def __init__(self, size: int, eps: float = 1e-6, device: Any = None, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.eps = eps
        self.weight = torch.nn.Parameter(torch.ones(size, device=device, dtype=dtype))

    def forward(self, input: Tensor, residual: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        if residual is None:
            return functional.rms_norm(input, self.weight, self.eps)
        return functional.add_rms_norm(input, residual, self.weight, self.eps)


class Embedding(torch.nn.Module):
    """Applies embedding() with a weight, [num_embeddings, dim], of normal numbers. The padding row starts as 0."""

    def __init__(
        self, num_embeddings: int, dim: int, padding_index: int | None = None, device: Any = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        self.padding_index = padding_index
        rows = torch.randn(num_embeddings, dim, device=device, dtype=dtype)
        if padding_index is not None:
            rows[padding_index] = 0
        self.weight = torch.nn.Parameter(rows)

    def forward(self, indices: Tensor) -> Tensor:
        return functional.embedding(self.weight, indices, self.padding_index)


class LinearCrossEntropy(torch.nn.Module):
    """Applies linear_cross_entropy() with a weight [classes, features] and an optional bias [classes].

    Both start uniform within 1 / sqrt(features) of 0. `options` are the keywords of linear_cross_entropy().
    """

    def __init__(
        self,
        features: int,
        classes: int,
        bias: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        bound = 1 / math.sqrt(features)
        self.options = options
        self.weight = torch.nn.Parameter(torch.empty(classes, features, device=device, dtype=dtype).uniform_(-bound, bound))
        self.bias = torch.nn.Parameter(torch.empty(classes, device=device, dtype=dtype).uniform_(-bound, bound)) if bias else None

    def forward(self, hidden: Tensor, targets: Tensor) -> Tensor:
        return functional.linear_cross_entropy(hidden, self.weight, targets, self.bias, **self.options)


class RotaryEmbedding(torch.nn.Module):
    """Applies rotary_embedding() with tables of `positions` rows, which are neither parameters nor buffers.

    The tables are on the input's device, in fp64 for an fp64 input and in fp32 for any other.
    """

    def __init__(self, positions: int, rotary: int, base: float = 10000.0, pairs: Literal["halves", "neighbours"] = "halves") -> None:
        super().__init__()
        self.pairs = pairs
        self.arguments = (positions, rotary, base)
        self.tables = functional.rotary_tables(*self.arguments)

    def forward(self, input: Tensor, first_position: int = 0) -> Tensor:
        """Rotates heads [batch, heads, positions, dim]. Their first position is `first_position`."""
        end = first_position + input.shape[2]
        if first_position < 0 or end > len(self.tables[0]):
            raise ValueError(
                f"positions {first_position} to {end} leave the tables, which have {len(self.tables[0])}; make the module with more"
            )
        dtype = torch.float64 if input.dtype == torch.float64 else torch.float32
        if self.tables[0].device != input.device or self.tables[0].dtype != dtype:
            self.tables = functional.rotary_tables(*self.arguments, input.device, 0, dtype)
        cos, sin = (table[first_position:end] for table in self.tables)
        return functional.rotary_embedding(input, cos, sin, self.pairs)
