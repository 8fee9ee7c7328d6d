"""What the optimizers of models in 16 bits without ZeRO have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepspeed.runtime.base_optimizer import DeepSpeedOptimizer

if TYPE_CHECKING:
    import torch


class OptimizerWithoutZero(DeepSpeedOptimizer):
    """Shows the 16-bit parameters of stage 0. Lists have an entry a group."""

    @property
    def low_precision_dtype(self) -> torch.dtype:
        """The dtype of the parameters."""
        return self.fp16_groups[0][0].dtype

    @property
    def fp16_groups(self) -> list[list[torch.Tensor]]:
        """The parameters."""
        return self._owned.params()
