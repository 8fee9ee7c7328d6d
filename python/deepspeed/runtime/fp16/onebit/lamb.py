from __future__ import annotations

from typing import TYPE_CHECKING

from deepspeed.ops.lamb.trust_ratios import TrustRatios
from deepspeed.runtime.fp16.onebit.one_bit_optimizer import OneBitOptimizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.optim.optimizer import ParamsT


class OnebitLamb(TrustRatios, OneBitOptimizer):
    """Steps by 1-bit Lamb (arXiv:2104.06069), at stages 0 and 1."""

    _type = "OneBitLamb"
    _keys = ("lr", "betas", "eps", "weight_decay", "max_coeff", "min_coeff")
    _own_keys = ("freeze_step", "coeff_beta", "factor_max", "factor_min", "factor_threshold")

    def __init__(
        self,
        params: ParamsT,
        deepspeed: object = None,
        lr: float = 1e-3,
        freeze_step: int = 100000,
        bias_correction: bool = True,
        betas: Sequence[float] = (0.9, 0.999),
        eps: float = 1e-8,
        eps_inside_sqrt: bool = False,
        weight_decay: float = 0.0,
        max_grad_norm: float = 0.0,
        max_coeff: float = 10.0,
        min_coeff: float = 0.01,
        amsgrad: bool = False,
        cuda_aware: bool = False,
        comm_backend_name: str = "nccl",
        coeff_beta: float = 0.9,
        factor_max: float = 4.0,
        factor_min: float = 0.5,
        factor_threshold: float = 0.1,
    ) -> None:
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
        own = dict(
            freeze_step=freeze_step,
            coeff_beta=coeff_beta,
            factor_max=factor_max,
            factor_min=factor_min,
            factor_threshold=factor_threshold,
        )
        super().__init__(params, defaults, amsgrad, eps_inside_sqrt, comm_backend_name, own)
