"""Defines SparseTensor: the nonzero rows of a matrix."""

from __future__ import annotations

import torch


class SparseTensor:
    """Holds row indices [n] and values [n, columns] of a dense or COO tensor [rows, columns]."""

    indices: torch.Tensor
    values: torch.Tensor
    dense_size: list[int]

    def __init__(self, dense_tensor: torch.Tensor | None = None) -> None:
        self.orig_dense_tensor = dense_tensor
        self.indices = self.values = self.dense_size = None  # type: ignore[assignment]  # a script sets them
        if dense_tensor is None:
            return
        self.is_sparse = dense_tensor.is_sparse
        self.dtype = dense_tensor.dtype
        self.dense_size = list(dense_tensor.shape)
        if self.is_sparse:
            whole = dense_tensor.coalesce()
            self.indices, self.values = whole.indices().flatten(), whole.values()
        else:
            self.indices = (dense_tensor != 0).any(dim=1).nonzero().flatten()
            self.values = dense_tensor[self.indices]

    @staticmethod
    def type() -> str:
        return "deepspeed.SparseTensor"

    def to_coo_tensor(self) -> torch.Tensor:
        return torch.sparse_coo_tensor(self.indices.unsqueeze(0), self.values, self.dense_size)

    def to_dense(self) -> torch.Tensor:
        """Returns the dense tensor. Values of a row that occurs twice are added."""
        return self.values.new_zeros(self.dense_size).index_add_(0, self.indices, self.values)

    def sparse_size(self) -> tuple[int, int]:
        """Returns (elements held, elements of the dense tensor)."""
        return self.indices.numel() + self.values.numel(), self.dense_size[0] * self.dense_size[1]

    def add(self, b: SparseTensor) -> None:
        """Adds another SparseTensor of the same dense size."""
        if self.dense_size != b.dense_size:
            raise ValueError(f"SparseTensor.add(): got the dense size {b.dense_size}, expected {self.dense_size}")
        self.indices = torch.cat([self.indices, b.indices])
        self.values = torch.cat([self.values, b.values])

    def __repr__(self) -> str:
        held, dense = self.sparse_size()
        return (
            f"DeepSpeed.SparseTensor(indices_size={self.indices.size()}, values_size={self.values.size()}, "
            f"dense_size={self.dense_size}, device={self.indices.device}, reduction_factor={dense / held})"
        )

    __str__ = __repr__
