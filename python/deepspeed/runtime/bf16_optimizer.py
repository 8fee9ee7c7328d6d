"""The optimizer of a model in bf16 whose gradients add up in fp32."""

import torch
import torch.distributed as dist

from deepspeed.runtime.base_optimizer import ZeROOptimizer


class BF16_Optimizer(ZeROOptimizer):
    """Is the optimizer of a model in bf16 at stage 1 with `grad_accum_dtype` fp32. Lists have an entry a group."""

    @property
    def bf16_groups(self):
        """The parameters."""
        return self._owned.params()

    @property
    def bf16_groups_flat(self):
        """The flat tensor that the parameters are views of."""
        return self._owned.weights()

    @property
    def fp32_groups_flat_partition(self):
        """The master weights."""
        return self._owned.masters()

    @property
    def fp32_groups_gradients_flat(self):
        """The reduced gradients of all ranks' parts, padding included; None between step() and the next update's. Collective."""
        group = self._engine().data_parallel_group
        return [_gathered(own, group) for own in self._owned.reduced()]


def _gathered(own, group):
    if own is None:
        return None
    parts = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, own, group=group)
    return torch.cat(parts)
