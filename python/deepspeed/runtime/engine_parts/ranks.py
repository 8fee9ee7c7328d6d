"""Tells an engine's place among the ranks of the job."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from deepspeed.runtime.engine_parts.part import EnginePart

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class EngineRanks(EnginePart):
    """Tells the engine's place among the ranks."""

    @property
    def local_rank(self) -> int:
        return int(os.environ.get("LOCAL_RANK", 0))

    @property
    def global_rank(self) -> int:
        return dist.get_rank()

    @property
    def world_size(self) -> int:
        return dist.get_world_size()

    @property
    def data_parallel_group(self) -> ProcessGroup | None:
        return dist.group.WORLD if self.mpu is None else self.mpu.get_data_parallel_group()

    @property
    def _data_parallel_rank(self) -> int:
        return dist.get_rank(self.data_parallel_group)

    def all_gather_scalar(self, value: torch.Tensor, dp_group: ProcessGroup | None = None) -> list[torch.Tensor]:
        """Returns the tensors of all ranks, in rank order. Collective."""
        gathered = [torch.zeros_like(value) for _ in range(dist.get_world_size(dp_group))]
        dist.all_gather(gathered, value.detach(), group=dp_group)
        return gathered
