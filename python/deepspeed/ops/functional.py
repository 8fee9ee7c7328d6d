"""The fused operators: each makes in one pass over its tensors what several operators of torch make in as many.

Tensors are fp32, bf16, fp16 or fp64, on the CPU or on CUDA; arithmetic and sums are fp32 (of fp64 fp64). A parameter (weight,
bias) has its input's dtype or, beside 16 bits, fp32. Shapes and dtypes that do not fit are errors. There is no second
derivative: create_graph is a NotSupportedError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch

from deepspeed import _core

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "add_layer_norm",
    "add_rms_norm",
    "bias_dropout_residual",
    "bias_gelu",
    "dropout",
    "embedding",
    "layer_norm",
    "linear_cross_entropy",
    "masked_softmax",
    "rms_norm",
    "rotary_embedding",
    "rotary_tables",
    "swiglu",
]


def layer_norm(input: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """Returns (x - mean) / sqrt(variance + eps) * weight + bias over the last dimension: [..., n], with parameters [n]."""
    return _core.layer_norm(input, weight, bias, eps)


def add_layer_norm(
    input: Tensor, residual: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> tuple[Tensor, Tensor]:
    """Returns layer_norm(input + residual) and that sum, which goes on as the next residual."""
    return _core.add_layer_norm(input, residual, weight, bias, eps)


def rms_norm(input: Tensor, weight: Tensor | None = None, eps: float = 1e-6) -> Tensor:
    """Returns x / sqrt(mean(x^2) + eps) * weight over the last dimension: [..., n], with a weight [n]."""
    return _core.rms_norm(input, weight, eps)


def add_rms_norm(input: Tensor, residual: Tensor, weight: Tensor | None = None, eps: float = 1e-6) -> tuple[Tensor, Tensor]:
    """Returns rms_norm(input + residual) and that sum."""
    return _core.add_rms_norm(input, residual, weight, eps)


def bias_gelu(input: Tensor, bias: Tensor | None = None) -> Tensor:
    """Returns the tanh form of GELU of input + bias: [..., n], with a bias [n]."""
    return _core.bias_gelu(input, bias)


def swiglu(gate: Tensor, up: Tensor | None = None) -> Tensor:
    """Returns silu(gate) * up. Without `up` the gate is the first half of [..., 2 n], and `up` the second."""
    return _core.swiglu(gate, up)


def dropout(input: Tensor, ratio: float = 0.5, training: bool = True) -> Tensor:
    """Returns input * keep / (1 - ratio), where keep is 0 with probability `ratio`, else 1.

    The mask is not kept: backward makes it again from a seed and an offset, which the generator of the input's device gives.
    Outside of training it returns the input.
    """
    return _core.dropout(input, ratio, training)


def bias_dropout_residual(input: Tensor, bias: Tensor | None, residual: Tensor, ratio: float = 0.5, training: bool = True) -> Tensor:
    """Returns dropout(input + bias) + residual: [..., n], with a bias [n]."""
    return _core.bias_dropout_residual(input, bias, residual, ratio, training)


def masked_softmax(scores: Tensor, mask: Tensor | None = None, scale: float = 1.0) -> Tensor:
    """Returns softmax(scale * scores + mask) over the last dimension of [..., keys].

    The mask broadcasts to the scores and has all keys: 0 where a key counts, -inf where it does not, or a bias, which may be
    learned.
    """
    return _core.masked_softmax(scores, mask, scale)


def rotary_tables(
    positions: int,
    rotary: int,
    base: float = 10000.0,
    device: torch.device | str = "cpu",
    first_position: int = 0,
    dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor]:
    """Returns cos and sin, [positions, rotary / 2], of position * base^(-2 i / rotary).

    An input of fp64 takes tables of fp64, others those of fp32.
    """
    return _core.rotary_tables(positions, rotary, base, torch.device(device), first_position, dtype)


def rotary_embedding(input: Tensor, cos: Tensor, sin: Tensor, pairs: Literal["halves", "neighbours"] = "halves") -> Tensor:
    """Returns heads [batch, heads, positions, dim] that are turned by their positions, in the input's strides.

    `cos` and `sin` are [positions, rotary / 2] or [batch, positions, rotary / 2], with rotary <= dim. Element i turns with
    i + rotary / 2 ("halves", as in Llama), or 2 i with 2 i + 1 ("neighbours", as in GPT-J).
    """
    return _core.rotary_embedding(input, cos, sin, pairs)


def embedding(weight: Tensor, indices: Tensor, padding_index: int | None = None) -> Tensor:
    """Returns rows of a weight [num_embeddings, dim]. The row `padding_index` takes no gradient."""
    return _core.embedding(weight, indices, padding_index)


def linear_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    bias: Tensor | None = None,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: Literal["mean", "sum", "none"] = "mean",
    gradients_in_forward: bool = True,
    chunk_rows: int = 0,
) -> Tensor:
    """Returns the cross entropy of the logits hidden weight^T + bias, in fp32, without ever keeping them.

    `hidden` is [..., features], `weight` [classes, features], `bias` [classes], `targets` [...], int64. Logits exist for
    `chunk_rows` rows at a time. 0 takes as many as fit 64 MiB, on a CPU in fp32; on a GPU all, if an eighth of the free memory
    holds them, else as many as fit a GiB. With `gradients_in_forward` the gradients are made together with the losses and wait
    for backward; without, or with reduction "none", backward makes the logits again.
    """
    return _core.linear_cross_entropy(
        hidden, weight, targets, bias, ignore_index, label_smoothing, reduction, gradients_in_forward, chunk_rows
    )
