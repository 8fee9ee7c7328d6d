"""Defines the base of optimizers for 16-bit models without ZeRO."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepspeed.runtime.base_optimizer import DeepSpeedOptimizer

if TYPE_CHECKING:
    import torch


class OptimizerWithoutZero(DeepSpeedOptimizer):
    """Shows the 16-bit parameters of stage 0. Lists have one entry for each group."""

    @property
    def low_precision_dtype(self) -> torch.dtype:
        """The dtype of the parameters."""
        return self.fp16_groups[0][0].dtype

    @property
    def fp16_groups(self) -> list[list[torch.Tensor]]:
        """The parameters."""
        return self._owned.params()
