"""The optimizer of a model in 16 bits without ZeRO."""
from deepspeed.runtime.base_optimizer import DeepSpeedOptimizer


class FP16_Optimizer(DeepSpeedOptimizer):
    """Is the optimizer of a model in 16 bits at stage 0, above a fused Adam. Lists have an entry a group."""

    _keeps_flat = True

    @property
    def low_precision_dtype(self):
        """The dtype of the parameters."""
        return self.fp16_groups[0][0].dtype

    @property
    def fp16_groups(self):
        """The parameters."""
        return self._owned.params()

    @property
    def fp16_groups_flat(self):
        """The flat tensor that the parameters are views of."""
        return self._owned.weights()

    @property
    def fp32_groups_flat(self):
        """The master weights."""
        return self._owned.masters()
