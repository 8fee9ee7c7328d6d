"""Undoes a step of Adam, from the weights, the gradient and the moments after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def roll_back(param: torch.Tensor, grad: torch.Tensor, state: dict[str, Any], options: Mapping[str, Any], decouples: bool) -> None:
    """Restores param and state (step, exp_avg, exp_avg_sq) to before the step, up to rounding.

    options: lr, betas, eps, weight_decay, bias_correction. decouples: whether weight decay is AdamW's.
    """
    step, (beta1, beta2), lr = state["step"], options["betas"], options["lr"]
    decay, corrects = options["weight_decay"], options.get("bias_correction", True)
    first, second = (1 - beta1**step, 1 - beta2**step) if corrects else (1.0, 1.0)
    mean, square = state["exp_avg"].float(), state["exp_avg_sq"].float()
    weights = param.detach().float() + lr / first * mean / ((square / second).sqrt() + options["eps"])
    gradient = grad.float()
    if decouples:
        weights = weights / (1 - lr * decay)
    else:
        gradient = gradient + decay * weights
    with torch.no_grad():
        param.copy_(weights)
        state["exp_avg"].copy_((mean - (1 - beta1) * gradient) / beta1)
        state["exp_avg_sq"].copy_(((square - (1 - beta2) * gradient.square()) / beta2).clamp_(min=0))
    state["step"] = step - 1
