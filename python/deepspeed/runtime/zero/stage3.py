"""The optimizer of ZeRO stage 3."""
import contextlib

from deepspeed.runtime.base_optimizer import ZeROOptimizer
from deepspeed.runtime.zero.partition_parameters import GatheredParameters


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

    @property
    def parameter_offload(self):
        """Is the object that has the hooks on the modules: its forward_hooks and backward_hooks."""
        return self._engine()._bare_calls


@contextlib.contextmanager
def unwrap_model_for_generation(model):
    """Holds all parameters of an engine whole for a scope, so that no call of generate() gathers them. Collective."""
    calls = model._bare_calls
    is_watched = bool(calls.forward_hooks)
    with GatheredParameters(model.parameters()):
        calls.stop()
        try:
            yield model
        finally:
            if is_watched:
                calls.watch(model.module)
