from __future__ import annotations

from typing import TYPE_CHECKING

from deepspeed.runtime.fp16.onebit.one_bit_optimizer import OneBitOptimizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.optim.optimizer import ParamsT


class OnebitAdam(OneBitOptimizer):
    """Steps by 1-bit Adam (arXiv:2102.02888), at stages 0 and 1."""

    _type = "OneBitAdam"
    _own_keys = ("freeze_step",)

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
        amsgrad: bool = False,
        cuda_aware: bool = False,
        comm_backend_name: str = "nccl",
    ) -> None:
        defaults = dict(
            lr=lr,
            bias_correction=bias_correction,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            max_grad_norm=max_grad_norm,
        )
        own = dict(freeze_step=freeze_step)
        super().__init__(params, defaults, amsgrad, eps_inside_sqrt, comm_backend_name, own)
