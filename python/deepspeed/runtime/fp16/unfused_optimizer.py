"""Shows the optimizer of a 16-bit model without ZeRO, over optimizers other than a fused Adam."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepspeed.runtime.optimizer_parts.without_zero import OptimizerWithoutZero

if TYPE_CHECKING:
    import torch


class FP16_UnfusedOptimizer(OptimizerWithoutZero):
    """Shows the optimizer of a 16-bit model at stage 0 with states of whole parameters. Lists have one entry for each group."""

    @property
    def fp32_groups(self) -> list[list[torch.Tensor]]:
        """The master weights of the parameters, in their shapes."""
        return self._owned.masters_of_params()
