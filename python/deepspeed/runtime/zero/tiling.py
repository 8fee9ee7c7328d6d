"""Defines linear layers in tiles, which stage 3 gathers one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from deepspeed.runtime.partitions import partition_uniform
from deepspeed.runtime.zero.partition_parameters import GatheredParameters

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any


def split_tensor_along_last_dim(
    tensor: torch.Tensor, partitions: int | list[int], contiguous_split_chunks: bool = False
) -> tuple[torch.Tensor, ...]:
    """Returns parts of these sizes, as views or as tensors with memory of their own."""
    parts = torch.split(tensor, partitions, dim=-1)
    return tuple(part.contiguous() for part in parts) if contiguous_split_chunks else parts


def _sizes(bounds: Sequence[int]) -> list[int]:
    return [end - begin for begin, end in zip(bounds, bounds[1:])]


class TiledLinear(torch.nn.Module):
    """Computes a linear layer as in_splits times out_splits smaller ones.

    The tiles of the last part of the input have the bias. linear_cls(in, out, bias=, **kwargs) makes a tile. input_is_already_split:
    forward() takes a list of in_splits tensors. combine_out_splits: it returns one tensor, not a list. init_linear: a layer whose values
    the tiles get.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        in_splits: int = 1,
        out_splits: int = 1,
        input_is_already_split: bool = False,
        combine_out_splits: bool = True,
        linear_cls: Callable[..., torch.nn.Module] = torch.nn.Linear,
        init_linear: torch.nn.Module | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        _check_splits("in_splits", in_splits, in_features)
        _check_splits("out_splits", out_splits, out_features)
        self.in_features, self.out_features = in_features, out_features
        self.in_splits, self.out_splits = in_splits, out_splits
        self.use_bias = bias
        self.input_is_already_split = input_is_already_split
        self.combine_out_splits = combine_out_splits
        self.in_parts = partition_uniform(in_features, in_splits)
        self.out_parts = partition_uniform(out_features, out_splits)
        self.linears: Any = torch.nn.ModuleList(
            torch.nn.ModuleList(
                linear_cls(columns, rows, bias=bias and index == in_splits - 1, **kwargs)
                for index, columns in enumerate(_sizes(self.in_parts))
            )
            for rows in _sizes(self.out_parts)
        )
        if init_linear is not None:
            self.copy_params_from(init_linear)

    def forward(self, input_: Any) -> Any:
        inputs = self._inputs(input_)
        outputs = []
        for out_id, row in enumerate(self.linears):
            output = None
            for in_id, tile in enumerate(row):
                output = self._reduce_local_output(in_id=in_id, out_id=out_id, current_out=output, new_out=tile(inputs[in_id]))
            outputs.append(output)
        return self._combine_output_splits(outputs) if self.combine_out_splits else outputs

    def _inputs(self, given: Any) -> Any:
        if self.in_splits == 1:
            return [given]
        if not self.input_is_already_split:
            return self._split_global_input(given, _sizes(self.in_parts))
        assert len(given) == self.in_splits, f"forward() got {len(given)} parts of the input, expected in_splits={self.in_splits}"
        return given

    def _split_global_input(self, input: Any, split_sizes: list[int]) -> Any:
        """Splits the input. Subclasses with other inputs than tensors override it."""
        return split_tensor_along_last_dim(input, split_sizes)

    def _reduce_local_output(self, in_id: int, out_id: int, current_out: Any, new_out: Any) -> Any:
        """Adds a tile's output to the earlier ones. Subclasses whose tiles return more override it."""
        return new_out if current_out is None else current_out + new_out

    def _combine_output_splits(self, outputs: Any) -> Any:
        """Joins the outputs. Subclasses whose tiles return more override it."""
        return torch.cat(outputs, dim=-1)

    @torch.no_grad()
    def copy_params_from(self, other: Any) -> None:
        """Copies a linear layer's values into the tiles. Collective at stage 3, which uses rank 0's values."""
        shape = (self.out_features, self.in_features)
        assert tuple(other.weight.shape) == shape, f"copy_params_from() got a weight {tuple(other.weight.shape)}, expected {shape}"
        assert (getattr(other, "bias", None) is not None) == self.use_bias, f"copy_params_from() expected bias={self.use_bias}"
        for begin, end, row in zip(self.out_parts, self.out_parts[1:], self.linears):
            for first, last, tile in zip(self.in_parts, self.in_parts[1:], row):
                _copy(tile.weight, other.weight[begin:end, first:last])
            if self.use_bias:
                _copy(row[-1].bias, other.bias[begin:end])


class TiledLinearReturnBias(TiledLinear):
    """Computes as TiledLinear with tiles that return (output, bias or None), as Megatron-LM's."""

    def _reduce_local_output(self, in_id: int, out_id: int, current_out: Any, new_out: Any) -> Any:
        tensor, bias = new_out
        before, bias_before = current_out if current_out is not None else (None, None)
        summed = super()._reduce_local_output(in_id=in_id, out_id=out_id, current_out=before, new_out=tensor)
        return summed, bias if bias is not None else bias_before

    def _combine_output_splits(self, outputs: Any) -> Any:
        biases = [bias for _, bias in outputs if bias is not None]
        combine = super()._combine_output_splits
        return combine([tensor for tensor, _ in outputs]), combine(biases) if biases else None


def _check_splits(name: str, splits: int, features: int) -> None:
    if not 1 <= splits <= features:
        raise RuntimeError(f"{name} is {splits}, expected 1 to {features}")


def _copy(param: torch.Tensor, values: torch.Tensor) -> None:
    with GatheredParameters(param, modifier_rank=0):
        param.copy_(values)
