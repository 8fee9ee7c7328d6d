"""What the optimizers of models in 16 bits without ZeRO have in common."""

from deepspeed.runtime.base_optimizer import DeepSpeedOptimizer


class OptimizerWithoutZero(DeepSpeedOptimizer):
    """Shows the 16-bit parameters of stage 0. Lists have an entry a group."""

    @property
    def low_precision_dtype(self):
        """The dtype of the parameters."""
        return self.fp16_groups[0][0].dtype

    @property
    def fp16_groups(self):
        """The parameters."""
        return self._owned.params()
