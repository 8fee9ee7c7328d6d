"""Shows the optimizer of a bf16 model whose gradients are accumulated in fp32."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from deepspeed.runtime.base_optimizer import ZeROOptimizer

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class BF16_Optimizer(ZeROOptimizer):
    """Shows the optimizer of a bf16 model at stage 1 with `grad_accum_dtype` fp32. Lists have one entry for each group."""

    @property
    def bf16_groups(self) -> list[list[torch.Tensor]]:
        """The parameters."""
        return self._owned.params()

    @property
    def bf16_groups_flat(self) -> list[torch.Tensor | None]:
        """The flat tensor that the parameters are views of."""
        return self._owned.weights()

    @property
    def fp32_groups_flat_partition(self) -> list[torch.Tensor]:
        """The master weights."""
        return self._owned.masters()

    @property
    def fp32_groups_gradients_flat(self) -> list[torch.Tensor | None]:
        """The reduced gradients of all ranks' parts, with padding. Collective.

        None after step(), until the next update's gradients are reduced.
        """
        group = self._engine().data_parallel_group
        return [_gathered(own, group) for own in self._owned.reduced()]


def _gathered(own: torch.Tensor | None, group: ProcessGroup | None) -> torch.Tensor | None:
    if own is None:
        return None
    parts = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, own, group=group)
    return torch.cat(parts)
