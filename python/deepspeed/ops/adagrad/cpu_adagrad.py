from __future__ import annotations

from typing import TYPE_CHECKING

from deepspeed.ops.core_optimizer import CoreOptimizer

if TYPE_CHECKING:
    from torch.optim.optimizer import ParamsT


class DeepSpeedCPUAdagrad(CoreOptimizer):
    """Steps by Adagrad with the CPU's vector instructions."""

    optimizer_id = 0
    _is_for_cpu = True
    _takes_sparse = True
    _type = "Adagrad"
    _keys = ("lr", "eps", "weight_decay")

    def __init__(
        self,
        model_params: ParamsT,
        lr: float = 1e-2,
        eps: float = 1e-10,
        weight_decay: float = 0,
        amsgrad: bool = False,
        fp32_optimizer_states: bool = True,
    ) -> None:
        super().__init__(model_params, dict(lr=lr, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad))
