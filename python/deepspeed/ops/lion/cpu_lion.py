from __future__ import annotations

from typing import TYPE_CHECKING

from deepspeed.ops.core_optimizer import CoreOptimizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.optim.optimizer import ParamsT


class DeepSpeedCPULion(CoreOptimizer):
    """Steps by Lion with the CPU's vector instructions (arXiv:2302.06675)."""

    optimizer_id = 0
    _is_for_cpu = True
    _type = "Lion"
    _keys = ("lr", "betas", "weight_decay")

    def __init__(
        self,
        model_params: ParamsT,
        lr: float = 1e-3,
        betas: Sequence[float] = (0.9, 0.999),
        weight_decay: float = 0,
        fp32_optimizer_states: bool = True,
    ) -> None:
        super().__init__(model_params, dict(lr=lr, betas=betas, weight_decay=weight_decay))
