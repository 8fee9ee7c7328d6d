from __future__ import annotations

from typing import TYPE_CHECKING

from deepspeed.runtime.fp16.onebit.one_bit_optimizer import OneBitOptimizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.optim.optimizer import ParamsT


class ZeroOneAdam(OneBitOptimizer):
    """Steps by 0/1 Adam (arXiv:2202.06009), at stage 0."""

    _type = "ZeroOneAdam"
    _own_keys = ("var_freeze_step", "var_update_scaler", "local_step_scaler", "local_step_clipper")

    def __init__(
        self,
        params: ParamsT,
        deepspeed: object = None,
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: Sequence[float] = (0.9, 0.999),
        eps: float = 1e-8,
        eps_inside_sqrt: bool = False,
        weight_decay: float = 0.0,
        max_grad_norm: float = 0.0,
        var_freeze_step: int = 100000,
        var_update_scaler: int = 16,
        local_step_scaler: int = 32678,
        local_step_clipper: int = 16,
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
        own = dict(
            var_freeze_step=var_freeze_step,
            var_update_scaler=var_update_scaler,
            local_step_scaler=local_step_scaler,
            local_step_clipper=local_step_clipper,
        )
        super().__init__(params, defaults, amsgrad, eps_inside_sqrt, comm_backend_name, own)
