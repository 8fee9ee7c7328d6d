"""The optimizer of a model in 16 bits without ZeRO, above other optimizers than a fused Adam."""
from deepspeed.runtime.base_optimizer import DeepSpeedOptimizer


class FP16_UnfusedOptimizer(DeepSpeedOptimizer):
    """Is the optimizer of a model in 16 bits at stage 0 whose states are of whole parameters. Lists have an entry a group."""

    @property
    def low_precision_dtype(self):
        """The dtype of the parameters."""
        return self.fp16_groups[0][0].dtype

    @property
    def fp16_groups(self):
        """The parameters."""
        return self._owned.params()

    @property
    def fp32_groups(self):
        """The master weights of the parameters, in their shapes."""
        return self._owned.masters_of_params()
