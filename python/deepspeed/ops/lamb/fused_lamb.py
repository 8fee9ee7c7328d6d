from __future__ import annotations

from typing import TYPE_CHECKING

from deepspeed.ops.core_optimizer import CoreOptimizer
from deepspeed.ops.lamb.trust_ratios import TrustRatios

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.optim.optimizer import ParamsT


class FusedLamb(TrustRatios, CoreOptimizer):
    """Steps by LAMB (arXiv:1904.00962). It needs whole parameters, which stages 0 to 3 provide."""

    _type = "Lamb"
    _keys = ("lr", "betas", "eps", "weight_decay", "bias_correction", "max_coeff", "min_coeff")

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: Sequence[float] = (0.9, 0.999),
        eps: float = 1e-8,
        eps_inside_sqrt: bool = False,
        weight_decay: float = 0.0,
        max_grad_norm: float = 0.0,
        max_coeff: float = 10.0,
        min_coeff: float = 0.01,
        amsgrad: bool = False,
    ) -> None:
        if amsgrad:
            raise RuntimeError("FusedLamb does not support the AMSGrad variant.")
        defaults = dict(
            lr=lr,
            bias_correction=bias_correction,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            max_grad_norm=max_grad_norm,
            max_coeff=max_coeff,
            min_coeff=min_coeff,
        )
        super().__init__(params, defaults)
