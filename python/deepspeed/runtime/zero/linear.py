"""Defines a linear layer as an autograd.Function that torch.func can transform.

It saves no memory here: stage 3 saves partitioned tensors for the backward of any operator.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

import torch

from deepspeed.accelerator import get_accelerator

if TYPE_CHECKING:
    from typing import Any

# Decorators for an autograd.Function's forward and backward, which use the autocast of the rank's device.
autocast_custom_fwd = functools.partial(torch.amp.autocast_mode.custom_fwd, device_type=get_accelerator().device_name())
autocast_custom_bwd = functools.partial(torch.amp.autocast_mode.custom_bwd, device_type=get_accelerator().device_name())


class LinearFunctionForZeroStage3(torch.autograd.Function):
    """Computes input @ weight.T + bias. Backward uses the autocast of the forward."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        if bias is not None and input.dim() == 2:
            return torch.addmm(bias, input, weight.t())
        product = input.matmul(weight.t())
        return product if bias is None else product + bias.to(product.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: object) -> None:
        device = get_accelerator().device_name()
        ctx._fwd_used_autocast = torch.is_autocast_enabled(device)
        ctx._dtype = torch.get_autocast_dtype(device)
        input, weight, *bias = inputs
        ctx._has_bias = bool(bias) and bias[0] is not None
        ctx.save_for_backward(input, weight)

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> Any:
        input, weight = ctx.saved_tensors
        with torch.autocast(get_accelerator().device_name(), enabled=ctx._fwd_used_autocast, dtype=ctx._dtype):
            of_input = grad_output.matmul(weight) if ctx.needs_input_grad[0] else None
            of_weight = _rows(grad_output).t().matmul(_rows(input)) if ctx.needs_input_grad[1] else None
            of_bias = _rows(grad_output).sum(0) if ctx._has_bias and ctx.needs_input_grad[2] else None
        return of_input, of_weight, of_bias


def _rows(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor as a matrix; the last dimension stays."""
    return tensor.reshape(-1, tensor.shape[-1])


def zero3_linear_wrap(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Computes torch.nn.functional.linear: input [..., in] @ weight [out, in].T + bias [out]."""
    output: torch.Tensor = LinearFunctionForZeroStage3.apply(input, weight, bias)  # type: ignore[no-untyped-call, unused-ignore]  # of torch
    return output


class LinearModuleForZeroStage3(torch.nn.Module):
    """Computes torch.nn.Linear by LinearFunctionForZeroStage3."""

    bias: torch.nn.Parameter | None

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = torch.nn.Parameter(torch.empty(out_features, in_features))
        self.register_parameter("bias", torch.nn.Parameter(torch.empty(out_features)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws weight and bias as torch.nn.Linear does."""
        torch.nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features)
            torch.nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return zero3_linear_wrap(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
