"""Provides collectives of several tensors at once, for scripts. An engine uses the core's."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from deepspeed._errors import not_supported

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.distributed import ProcessGroup

_WAY_OUT = "quantized collectives do not exist; use reduce_scatter_coalesced()"
all_to_all_quant_reduce = not_supported("all_to_all_quant_reduce", _WAY_OUT)
all_to_all_loco_quant_reduce = not_supported("all_to_all_loco_quant_reduce", _WAY_OUT)


def reduce_scatter_coalesced(tensors: Sequence[torch.Tensor], group: ProcessGroup | None = None) -> list[torch.Tensor]:
    """Returns this rank's part of each tensor's mean over the ranks, flat.

    A part has ceil(n / ranks) elements, the last ones fewer. Collective.
    """
    import torch.distributed as dist

    ranks, rank = dist.get_world_size(group), dist.get_rank(group)
    sizes = [math.ceil(tensor.numel() / ranks) for tensor in tensors]
    rows = [
        torch.nn.functional.pad(tensor.reshape(-1), (0, size * ranks - tensor.numel())).view(ranks, size)
        for tensor, size in zip(tensors, sizes)
    ]
    own = torch.empty_like(torch.cat([row[0] for row in rows]))
    dist.reduce_scatter_tensor(own, torch.cat(rows, dim=1).div_(ranks).view(-1), group=group)
    parts = own.split(sizes)
    return [part[: max(0, min(size, tensor.numel() - rank * size))] for part, size, tensor in zip(parts, sizes, tensors)]
