"""The optimizer of ZeRO stage 3."""
from deepspeed.runtime.base_optimizer import ZeROOptimizer


class DeepSpeedZeroOptimizer_Stage3(ZeROOptimizer):
    """Is the optimizer of ZeRO stage 3. Lists have an entry a sub-group."""

    @property
    def fp16_groups(self):
        """The parameters."""
        return self._owned.params()

    @property
    def fp16_partitioned_groups_flat(self):
        """This rank's shards of the parameters, in the model's dtype; None where they are on a disk."""
        return self._owned.weights()

    @property
    def fp32_partitioned_groups_flat(self):
        """This rank's shards of the master weights."""
        return self._owned.masters()
