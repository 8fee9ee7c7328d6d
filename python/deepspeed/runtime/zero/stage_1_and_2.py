"""Defines the optimizer of ZeRO stages 1 and 2."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.distributed as dist

from deepspeed.runtime.base_optimizer import ZeROOptimizer

if TYPE_CHECKING:
    import torch


class DeepSpeedZeroOptimizer(ZeROOptimizer):
    """Shows the optimizer of ZeRO stages 1 and 2. Lists have one entry for each group."""

    nccl_start_alignment_factor = 2

    @property
    def bit16_groups(self) -> list[list[torch.Tensor]]:
        """The parameters."""
        return self._owned.params()

    @property
    def bit16_groups_flat(self) -> list[torch.Tensor | None]:
        """The flat tensor that the parameters are views of."""
        return self._owned.weights()

    @property
    def parallel_partitioned_bit16_groups(self) -> list[list[torch.Tensor]]:
        """The partitions of the flat tensor, one for each rank."""
        return [list(flat.chunk(dist.get_world_size())) for flat in self.bit16_groups_flat if flat is not None]

    @property
    def single_partition_of_fp32_groups(self) -> list[torch.Tensor]:
        """This rank's partition of the master weights, with its padding."""
        return self._owned.masters()

    @property
    def accumulated_grads_in_cpu(self) -> dict[int, torch.Tensor]:
        """This rank's elements of the window's gradient sums: {index of the parameter: tensor}. Only with the optimizer on the host."""
        if not self._engine().zero_cpu_offload():
            raise AttributeError("accumulated_grads_in_cpu: the optimizer is not on the host (zero_optimization.offload_optimizer)")
        return self._owned.sums()

    @property
    def partition_size(self) -> list[int]:
        """The number of elements of a partition."""
        return [part.end - part.begin for part in self._owned.parts()]
