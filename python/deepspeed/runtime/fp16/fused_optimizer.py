"""Shows the optimizer of a 16-bit model without ZeRO."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepspeed.runtime.optimizer_parts.without_zero import OptimizerWithoutZero

if TYPE_CHECKING:
    import torch


class FP16_Optimizer(OptimizerWithoutZero):
    """Shows the optimizer of a 16-bit model at stage 0, over a fused Adam. Lists have one entry for each group."""

    _keeps_flat = True

    @property
    def fp16_groups_flat(self) -> list[torch.Tensor | None]:
        """The flat tensor that the parameters are views of."""
        return self._owned.weights()

    @property
    def fp32_groups_flat(self) -> list[torch.Tensor]:
        """The master weights."""
        return self._owned.masters()
