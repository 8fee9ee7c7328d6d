"""Gives the core the ranks of a script's model parallel unit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.distributed as dist

from deepspeed import _core
from deepspeed._errors import UsageError
from deepspeed.utils.bwc import bwc_tensor_model_parallel_group

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from deepspeed._types import Mpu


def core_mpu(mpu: Mpu | None) -> _core.Mpu | None:
    """Returns the core's view of an mpu object; None without one. All ranks of each of its groups must call it."""
    if mpu is None:
        return None
    for name in ("get_model_parallel_group", "get_data_parallel_group"):
        if not hasattr(mpu, name):
            raise UsageError(f"mpu: {type(mpu).__name__} has no {name}(), which the mpu of a model-parallel script has, as Megatron's")
    model = _ranks_of(mpu.get_model_parallel_group())
    tensor = bwc_tensor_model_parallel_group(mpu)
    return _core.Mpu(data=_ranks_of(mpu.get_data_parallel_group()), model=model, tensor=model if tensor is None else _ranks_of(tensor))


def _ranks_of(group: ProcessGroup | None) -> list[int]:
    """Returns the group's global ranks in ascending order; without a group, this rank."""
    return [dist.get_rank()] if group is None else sorted(dist.get_process_group_ranks(group))
