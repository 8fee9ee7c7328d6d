from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from deepspeed.ops.adam.rollback import roll_back
from deepspeed.ops.closure import loss_of
from deepspeed.ops.core_optimizer import CoreOptimizer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from torch.optim.optimizer import ParamsT


class DeepSpeedCPUAdam(CoreOptimizer):
    """Steps by Adam or AdamW with the CPU's vector instructions."""

    optimizer_id = 0
    _is_for_cpu = True
    _type = "Adam"
    _keys = ("lr", "betas", "eps", "weight_decay", "bias_correction")

    def __init__(
        self,
        model_params: ParamsT,
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: Sequence[float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        adamw_mode: bool = True,
        fp32_optimizer_states: bool = True,
    ) -> None:
        defaults = dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, bias_correction=bias_correction, amsgrad=amsgrad)
        super().__init__(model_params, defaults)
        self.adam_w_mode = adamw_mode
        self.fp32_optimizer_states = fp32_optimizer_states

    def _params(self) -> dict[str, Any]:
        params = {"adam_w_mode": self.adam_w_mode}
        if not self.fp32_optimizer_states:
            params["fp32_optimizer_states"] = False
        return params

    @torch.no_grad()
    def step_subgroup(self, subgroup_id: int, closure: Callable[[], float] | None = None) -> float | None:
        """Steps one parameter, whose state is kept under the number of a subgroup."""
        loss = loss_of(closure)
        for group, param in self._with_gradients():
            self._step_one(param, self._options(group), subgroup_id)
        return loss

    def rollback_subgroup(self, sub_group_id: int, closure: Callable[[], float] | None = None) -> float | None:
        """Undoes the subgroup's last step. Raises RuntimeError if there is none."""
        loss = loss_of(closure)
        states: dict[Any, Any] = self.state  # keyed by subgroup if those are stepped
        state = states[sub_group_id] if sub_group_id in states else {}
        if not state:
            raise RuntimeError(f"Cannot rollback optimizer state for sub_group_id {sub_group_id}: it was not stepped")
        if state["step"] <= 0:
            raise RuntimeError(f"Cannot rollback sub_group_id {sub_group_id}: step count is {state['step']}")
        for group, param in self._with_gradients():
            assert param.grad is not None
            roll_back(param, param.grad, state, group, self.adam_w_mode)
            self._load(self._numbers[sub_group_id], sub_group_id)
        return loss

    def _with_gradients(self) -> list[tuple[dict[str, Any], torch.Tensor]]:
        return [(group, param) for group in self.param_groups for param in group["params"] if param.grad is not None]
