from __future__ import annotations

from typing import TYPE_CHECKING

from deepspeed.ops.core_optimizer import CoreOptimizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.optim.optimizer import ParamsT


class FusedLion(CoreOptimizer):
    """Steps by Lion in one pass over all parameters (arXiv:2302.06675)."""

    _type = "Lion"
    _keys = ("lr", "betas", "weight_decay")

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        betas: Sequence[float] = (0.9, 0.999),
        weight_decay: float = 0.0,
        set_grad_none: bool = True,
    ) -> None:
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))
        self.set_grad_none = set_grad_none
