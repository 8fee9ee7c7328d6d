from __future__ import annotations

from typing import TYPE_CHECKING

from deepspeed.ops.core_optimizer import CoreOptimizer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from torch.optim.optimizer import ParamsT


class FusedAdam(CoreOptimizer):
    """Steps by Adam, or AdamW, in one pass over all parameters."""

    _type = "Adam"
    _keys = ("lr", "betas", "eps", "weight_decay", "bias_correction")

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: Sequence[float] = (0.9, 0.999),
        eps: float = 1e-8,
        adam_w_mode: bool = True,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        set_grad_none: bool = True,
    ) -> None:
        if amsgrad:
            raise RuntimeError("FusedAdam does not support the AMSGrad variant.")
        super().__init__(params, dict(lr=lr, bias_correction=bias_correction, betas=betas, eps=eps, weight_decay=weight_decay))
        self.adam_w_mode = 1 if adam_w_mode else 0
        self.set_grad_none = set_grad_none

    def _params(self) -> dict[str, Any]:
        return {"adam_w_mode": bool(self.adam_w_mode)}
