"""The place of an engine's process among those of the job."""

import os

import torch
import torch.distributed as dist


class EngineRanks:
    """Is a part of the engine."""

    @property
    def local_rank(self):
        return int(os.environ.get("LOCAL_RANK", 0))

    @property
    def global_rank(self):
        return dist.get_rank()

    @property
    def world_size(self):
        return dist.get_world_size()

    @property
    def data_parallel_group(self):
        return dist.group.WORLD if self.mpu is None else self.mpu.get_data_parallel_group()

    @property
    def _data_parallel_rank(self):
        return dist.get_rank(self.data_parallel_group)

    def all_gather_scalar(self, value, dp_group=None):
        """Returns the tensors of all ranks, in their order. Collective."""
        gathered = [torch.zeros_like(value) for _ in range(dist.get_world_size(dp_group))]
        dist.all_gather(gathered, value.detach(), group=dp_group)
        return gathered
