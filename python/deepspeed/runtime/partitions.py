"""Divides a list into consecutive parts, and a tensor over the ranks of a group."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from deepspeed import _core

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch.distributed import ProcessGroup
    from typing_extensions import Self


def prefix_sum_inc(weights: Iterable[int]) -> list[int]:
    """Returns the running sums, each including its own element."""
    return list(itertools.accumulate(weights))


def partition_uniform(num_items: int, num_parts: int) -> list[int]:
    """Returns num_parts + 1 bounds of parts that differ by at most one; larger parts come first."""
    return _core.partition_uniform(num_items, num_parts)


def partition_balanced(weights: Sequence[float], num_parts: int) -> list[int]:
    """Returns num_parts + 1 bounds that balance the parts' sums of weights as well as possible."""
    return _core.partition_balanced(weights, num_parts)


class PartitionedTensor:
    """Holds this rank's share of a tensor. full() gathers the tensor.

    The meta tensor lets another rank make a PartitionedTensor of its own share.
    """

    def __init__(self, tensor: torch.Tensor, group: ProcessGroup | None, partition_meta: object = None) -> None:
        self.group = group
        self.num_parts = dist.get_world_size(group=group)
        self.rank = dist.get_rank(group=group)
        self.orig_size = list(tensor.size())
        self.orig_device = tensor.device
        bounds = partition_uniform(tensor.numel(), self.num_parts)
        self.partition = bounds
        self.local_data = tensor.detach().reshape(-1)[bounds[self.rank] : bounds[self.rank + 1]].clone()
        self.even_split = tensor.numel() % self.num_parts == 0

    @classmethod
    def from_meta(
        cls, meta: torch.Tensor, local_part: torch.Tensor, group: ProcessGroup | None, device: torch.device | str | None = None
    ) -> Self:
        """Makes a PartitionedTensor of a share and another rank's to_meta()."""
        numbers = meta.tolist()
        made = cls.__new__(cls)
        made.group = group
        made.orig_size = numbers[1 : 1 + numbers[0]]
        rest = numbers[1 + numbers[0] :]
        made.num_parts, made.rank, made.partition = rest[0], dist.get_rank(group=group), rest[2:]
        made.local_data = local_part
        made.orig_device = torch.device(device) if device is not None else local_part.device
        made.even_split = made.partition[-1] % made.num_parts == 0
        return made

    def to_meta(self) -> torch.Tensor:
        """Returns dimensions, shape, number of parts, rank and bounds in one tensor of integers."""
        numbers = [len(self.orig_size), *self.orig_size, self.num_parts, self.rank, *self.partition]
        return torch.tensor(numbers, dtype=torch.long, device=self.local_data.device)

    def full(self, device: torch.device | str | None = None) -> torch.Tensor:
        """Gathers the tensor. Collective over the group."""
        size = max(end - begin for begin, end in zip(self.partition, self.partition[1:]))
        own = self.local_data.new_zeros(size)
        own[: self.local_data.numel()] = self.local_data
        parts = [torch.empty_like(own) for _ in range(self.num_parts)]
        dist.all_gather(parts, own, group=self.group)
        sizes = [end - begin for begin, end in zip(self.partition, self.partition[1:])]
        whole = torch.cat([part[:count] for part, count in zip(parts, sizes)])
        return whole.view(self.orig_size).to(device or self.orig_device)

    def data(self) -> torch.Tensor:
        return self.local_data

    def local_size(self) -> torch.Size:
        return self.local_data.size()

    def full_size(self) -> list[int]:
        return self.orig_size
