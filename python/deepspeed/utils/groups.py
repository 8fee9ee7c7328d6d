"""Provides groups of ranks by what they hold in common.

Each rank holds the whole model: the data-parallel group is the world, and the groups of tensor, model and sequence parallelism have one
rank. A script may set an `mpu`, or a device mesh with the axes data_parallel and sequence_parallel, which answers instead. Groups of
experts exist if a script makes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.distributed as dist

from deepspeed._errors import not_supported
from deepspeed.utils import expert_groups

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh

mpu: Any = None  # it may lack some methods beyond those of Mpu
mesh_device: DeviceMesh | None = None
expert_tensor_parallel_world_size = 1

_NO_EXPERTS = "expert parallelism does not exist; partition the experts by ZeRO stage 3"
_NO_TENSORS = "tensor parallelism does not exist; partition the model by ZeRO stage 3"

initialize = not_supported("deepspeed.utils.groups.initialize", _NO_EXPERTS)
_create_expert_data_and_model_parallel = not_supported("deepspeed.utils.groups._create_expert_data_and_model_parallel", _NO_EXPERTS)
_create_model_parallel = not_supported("deepspeed.utils.groups._create_model_parallel", _NO_TENSORS)
_create_zero_param_parallel_group = not_supported(
    "deepspeed.utils.groups._create_zero_param_parallel_group", "leave zero_hpz_partition_size and mics_shard_size out of the config"
)

_world_clone: tuple[ProcessGroup, ProcessGroup] | None = None  # the world's group, and the default group that it was made from
_own_group: tuple[ProcessGroup, ProcessGroup] | None = None  # this rank's group, and the default group that it was made from


def _require_world() -> None:
    assert dist.is_initialized(), "dist is not initialized"


# --- data parallelism ---


def _clone_world_group() -> ProcessGroup:
    """Returns a group of all ranks, made once for each default group by new_group(). The first call is collective."""
    global _world_clone
    _require_world()
    world = dist.distributed_c10d._get_default_group()
    if _world_clone is None or _world_clone[1] is not world:
        made: Any = dist.new_group(range(dist.get_world_size()))
        _world_clone = made, world
    return _world_clone[0]


def _get_data_parallel_group() -> ProcessGroup | None:
    _require_world()
    if mesh_device is not None:
        return mesh_device.get_group(mesh_dim="data_parallel")
    if mpu is not None:
        return None if hasattr(mpu, "initialize_sequence_parallel") else mpu.get_data_parallel_group()
    return _clone_world_group()


def _get_data_parallel_group_ranks() -> Sequence[int]:
    _require_world()
    return mpu.get_data_parallel_group_ranks() if mpu is not None else range(dist.get_world_size())


def _get_data_parallel_world_size() -> int:
    _require_world()
    if mesh_device is not None:
        return dist.get_world_size(_get_data_parallel_group())
    if mpu is None:
        return dist.get_world_size()
    if hasattr(mpu, "initialize_sequence_parallel"):
        size: int = mpu.get_sequence_data_parallel_world_size() // mpu.get_sequence_parallel_world_size()
        return size
    size = mpu.get_data_parallel_world_size()
    return size


def _get_data_parallel_rank() -> int:
    if mpu is None and mesh_device is None:
        _require_world()
        return dist.get_rank()
    return dist.get_rank(_get_data_parallel_group())


get_data_parallel_group = _get_data_parallel_group
get_data_parallel_world_size = _get_data_parallel_world_size
get_data_parallel_rank = _get_data_parallel_rank


# --- tensor and model parallelism ---


def _group_of_this_rank() -> ProcessGroup:
    """Returns the group of this rank only. The first call is collective."""
    global _own_group
    _require_world()
    world = dist.distributed_c10d._get_default_group()
    if _own_group is None or _own_group[1] is not world:
        groups: list[Any] = [dist.new_group([rank]) for rank in range(dist.get_world_size())]
        _own_group = groups[dist.get_rank()], world
    return _own_group[0]


def get_tensor_model_parallel_group() -> ProcessGroup | None:
    return mpu.get_tensor_model_parallel_group() if mpu is not None else _group_of_this_rank()


def get_model_parallel_group() -> ProcessGroup | None:
    return mpu.get_model_parallel_group() if mpu is not None else _group_of_this_rank()


def get_tensor_model_parallel_world_size() -> int:
    return dist.get_world_size(mpu.get_tensor_model_parallel_group()) if mpu is not None else 1


def get_tensor_model_parallel_rank() -> int:
    return dist.get_rank(mpu.get_tensor_model_parallel_group()) if mpu is not None else 0


def get_tensor_model_parallel_src_rank() -> int:
    """Returns the global rank of the first member of this rank's group."""
    _require_world()
    size = get_tensor_model_parallel_world_size()
    return dist.get_rank() // size * size


get_model_parallel_world_size = get_tensor_model_parallel_world_size
get_model_parallel_rank = get_tensor_model_parallel_rank


def _get_model_parallel_world_size() -> int:
    return mpu.get_model_parallel_world_size() if mpu is not None else 1


# --- sequence parallelism ---


def _get_sequence_parallel_world_size() -> int:
    if mesh_device is not None:
        return dist.get_world_size(mesh_device.get_group(mesh_dim="sequence_parallel"))
    return mpu.get_sequence_parallel_world_size() if hasattr(mpu, "get_sequence_parallel_world_size") else 1


def _get_sequence_parallel_rank() -> int:
    if mesh_device is not None:
        return dist.get_rank(mesh_device.get_group(mesh_dim="sequence_parallel"))
    return mpu.get_sequence_parallel_rank() if hasattr(mpu, "get_sequence_parallel_rank") else 0


def _get_sequence_parallel_group() -> ProcessGroup:
    """Returns the group that splits sequences. Raises KeyError if there is none."""
    if mesh_device is not None:
        return mesh_device.get_group(mesh_dim="sequence_parallel")
    if hasattr(mpu, "get_sequence_parallel_group"):
        group: ProcessGroup = mpu.get_sequence_parallel_group()
        return group
    raise KeyError("no sequence parallel group exists: neither an mpu nor a device mesh has one")


def _get_sequence_data_parallel_world_size() -> int:
    if hasattr(mpu, "get_sequence_data_parallel_world_size"):
        size: int = mpu.get_sequence_data_parallel_world_size()
        return size
    return _get_data_parallel_world_size()


def _get_sequence_data_parallel_rank() -> int:
    if hasattr(mpu, "get_sequence_data_parallel_rank"):
        rank: int = mpu.get_sequence_data_parallel_rank()
        return rank
    return _get_data_parallel_rank()


def _get_sequence_data_parallel_group() -> ProcessGroup | None:
    if hasattr(mpu, "get_sequence_data_parallel_group"):
        group: ProcessGroup | None = mpu.get_sequence_data_parallel_group()
        return group
    return _get_data_parallel_group()


def _get_broadcast_src_rank() -> int:
    """Returns the global rank of the group's first member, whose weights the others get."""
    group = _get_sequence_data_parallel_group()
    assert group is not None
    return dist.get_global_rank(group, 0)


# --- expert parallelism: groups for layers of a script's own ---

_ensure_divisibility = expert_groups.ensure_divisibility
_get_expert_parallel_ranks = expert_groups.get_expert_parallel_ranks


def _create_expert_and_data_parallel(
    expert_parallel_size_: int,
    mp_size: int | None = None,
    pp_size: int | None = None,
    mp_mode: str = "tp",
    use_data_before_expert_parallel_: bool = False,
    folding_spec: object = None,
) -> None:
    """Makes groups of expert_parallel_size_ ranks, and of ranks with the same experts. Collective."""
    expert_groups.create(expert_parallel_size_, mp_size, pp_size, mp_mode, use_data_before_expert_parallel_, folding_spec, mpu)


def _get_max_expert_size() -> int | None:
    """Returns the size of the largest expert-parallel group; None if there is none."""
    return expert_groups.max_size()


def _get_max_expert_size_name() -> str:
    return f"ep_size_{_get_max_expert_size()}"


def _get_max_expert_parallel_group() -> ProcessGroup:
    return _get_expert_parallel_group(_get_max_expert_size_name())


def _get_expert_parallel_group(group_name: str) -> ProcessGroup:
    return expert_groups.expert_parallel(group_name).group


def _get_expert_parallel_group_ranks(group_name: str) -> list[int]:
    return expert_groups.expert_parallel(group_name).ranks


def _get_expert_parallel_group_dict() -> dict[str, ProcessGroup]:
    return expert_groups.expert_parallel_groups()


def _get_expert_parallel_world_size(group_name: str) -> int:
    return dist.get_world_size(group=_get_expert_parallel_group(group_name))


def _get_expert_parallel_rank(group_name: str) -> int:
    return dist.get_rank(group=_get_expert_parallel_group(group_name))


def _get_expert_parallel_src_rank(group_name: str) -> int:
    """Returns the global rank of the first member of this rank's group."""
    return _get_expert_parallel_group_ranks(group_name)[0]


def _get_expert_data_parallel_group(group_name: str) -> ProcessGroup:
    return expert_groups.expert_data_parallel(group_name).group


def _get_expert_data_parallel_group_ranks(group_name: str) -> list[int]:
    return expert_groups.expert_data_parallel(group_name).ranks


def _get_expert_data_parallel_group_dict() -> dict[str, ProcessGroup]:
    return expert_groups.expert_data_parallel_groups()


def _get_expert_data_parallel_world_size(group_name: str) -> int:
    return dist.get_world_size(group=_get_expert_data_parallel_group(group_name))


def _get_expert_data_parallel_rank(group_name: str) -> int:
    return dist.get_rank(group=_get_expert_data_parallel_group(group_name))


def _get_expert_broadcast_src_rank(group_name: str) -> int:
    """Returns the global rank whose initial experts the ranks with the same ones get."""
    return _get_expert_data_parallel_group_ranks(group_name)[0]


def _get_expert_model_parallel_world_size() -> int:
    return expert_tensor_parallel_world_size


# --- secondary partitions of parameters, of which there are none ---


def _get_zero_param_intra_parallel_group() -> None:
    """Returns None: there is no group of a secondary partition."""


def _zero_param_parallel_is_initialized() -> bool:
    return False
