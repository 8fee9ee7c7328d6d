"""The fused operators. Each computes in one pass over its tensors what takes several operators of torch one pass each.

Tensors are fp32, bf16, fp16 or fp64, on the CPU or on CUDA. Arithmetic and sums are fp32, or fp64 for fp64 tensors. A parameter
(weight, bias) has its input's dtype; for 16-bit inputs it may also be fp32. Shapes and dtypes that do not fit are errors. There is
no second derivative: create_graph raises NotSupportedError.
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
    """Returns (x - mean) / sqrt(variance + eps) * weight + bias over the last dimension of [..., n]. Parameters are [n]."""
    return _core.layer_norm(input, weight, bias, eps)


def add_layer_norm(
    input: Tensor, residual: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> tuple[Tensor, Tensor]:
    """Returns layer_norm(input + residual) and that sum, which is the next residual."""
    return _core.add_layer_norm(input, residual, weight, bias, eps)


def rms_norm(input: Tensor, weight: Tensor | None = None, eps: float = 1e-6) -> Tensor:
    """Returns x / sqrt(mean(x^2) + eps) * weight over the last dimension of [..., n]. The weight is [n]."""
    return _core.rms_norm(input, weight, eps)


def add_rms_norm(input: Tensor, residual: Tensor, weight: Tensor | None = None, eps: float = 1e-6) -> tuple[Tensor, Tensor]:
    """Returns rms_norm(input + residual) and that sum, which is the next residual."""
    return _core.add_rms_norm(input, residual, weight, eps)


def bias_gelu(input: Tensor, bias: Tensor | None = None) -> Tensor:
    """Returns GELU of input + bias, in its tanh form. The input is [..., n], the bias [n]."""
    return _core.bias_gelu(input, bias)


def swiglu(gate: Tensor, up: Tensor | None = None) -> Tensor:
    """Returns silu(gate) * up. Without `up` the first argument holds both side by side, [..., 2 n]."""
    return _core.swiglu(gate, up)


def dropout(input: Tensor, ratio: float = 0.5, training: bool = True) -> Tensor:
    """Returns input * mask / (1 - ratio). The mask is 0 with probability `ratio`, otherwise 1.

    The mask is not kept: backward computes it again from a seed and an offset, which come from the generator of the input's device.
    Without `training` the result is the input.
    """
    return _core.dropout(input, ratio, training)


def bias_dropout_residual(input: Tensor, bias: Tensor | None, residual: Tensor, ratio: float = 0.5, training: bool = True) -> Tensor:
    """Returns dropout(input + bias) + residual. Input and residual are [..., n], the bias is [n]."""
    return _core.bias_dropout_residual(input, bias, residual, ratio, training)


def masked_softmax(scores: Tensor, mask: Tensor | None = None, scale: float = 1.0) -> Tensor:
    """Returns softmax(scale * scores + mask) over the last dimension of [..., keys].

    The mask broadcasts to the scores and has all keys. It is 0 for a key that counts and -inf for one that does not, or it is a
    bias, which may be learned.
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
    """Returns cos and sin of position * base^(-2 i / rotary), each [positions, rotary / 2].

    An fp64 input needs fp64 tables, any other input fp32 ones.
    """
    return _core.rotary_tables(positions, rotary, base, torch.device(device), first_position, dtype)


def rotary_embedding(input: Tensor, cos: Tensor, sin: Tensor, pairs: Literal["halves", "neighbours"] = "halves") -> Tensor:
    """Rotates heads [batch, heads, positions, dim] by their positions. The result has the input's strides.

    `cos` and `sin` are [positions, rotary / 2] or [batch, positions, rotary / 2], with rotary <= dim. A pair is elements i and
    i + rotary / 2 ("halves", as in Llama), or 2 i and 2 i + 1 ("neighbours", as in GPT-J).
    """
    return _core.rotary_embedding(input, cos, sin, pairs)


def embedding(weight: Tensor, indices: Tensor, padding_index: int | None = None) -> Tensor:
    """Returns rows of a weight [num_embeddings, dim]. The row `padding_index` gets no gradient."""
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
    """Returns the cross entropy of the logits hidden weight^T + bias, in fp32, without keeping all logits.

    `hidden` is [..., features], `weight` [classes, features], `bias` [classes], `targets` [...], int64. Logits exist for
    `chunk_rows` rows at a time. 0 means as many as fit in 64 MiB (in fp32 on a CPU). On a GPU it means all if they fit in an eighth
    of the free memory, otherwise as many as fit in a GiB. With `gradients_in_forward` the gradients are computed together with the
    losses and kept until backward. Without it, or with reduction "none", backward computes the logits again.
    """
    return _core.linear_cross_entropy(
        hidden, weight, targets, bias, ignore_index, label_smoothing, reduction, gradients_in_forward, chunk_rows
    )
