"""The optimizer of a model in 16 bits without ZeRO, above other optimizers than a fused Adam."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepspeed.runtime.optimizer_parts.without_zero import OptimizerWithoutZero

if TYPE_CHECKING:
    import torch


class FP16_UnfusedOptimizer(OptimizerWithoutZero):
    """Shows the optimizer of a model in 16 bits at stage 0 whose states are of whole parameters. Lists have an entry a group."""

    @property
    def fp32_groups(self) -> list[list[torch.Tensor]]:
        """The master weights of the parameters, in their shapes."""
        return self._owned.masters_of_params()
