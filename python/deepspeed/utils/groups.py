"""Groups of ranks by what they hold in common.

Each rank holds the whole model: the data-parallel group is the world, and the groups of tensor, model and sequence parallelism
have one rank. An `mpu`, or a device mesh with the axes data_parallel and sequence_parallel, that a script sets here answers in
their place.
"""
import torch.distributed as dist

from deepspeed._errors import not_supported

mpu = None
mesh_device = None
expert_tensor_parallel_world_size = 1

_NO_EXPERTS = "expert parallelism does not exist; partition the experts by ZeRO stage 3"
_NO_TENSORS = "tensor parallelism does not exist; partition the model by ZeRO stage 3"

initialize = not_supported("deepspeed.utils.groups.initialize", _NO_EXPERTS)
_create_expert_and_data_parallel = not_supported("deepspeed.utils.groups._create_expert_and_data_parallel", _NO_EXPERTS)
_create_expert_data_and_model_parallel = not_supported("deepspeed.utils.groups._create_expert_data_and_model_parallel", _NO_EXPERTS)
_create_model_parallel = not_supported("deepspeed.utils.groups._create_model_parallel", _NO_TENSORS)
_create_zero_param_parallel_group = not_supported(
    "deepspeed.utils.groups._create_zero_param_parallel_group", "leave zero_hpz_partition_size and mics_shard_size out of the config"
)

_world_clone = None  # the world's group, and the default group that it was made of
_own_group = None  # the group of this rank alone, likewise


def _require_world():
    assert dist.is_initialized(), "dist is not initialized"


# --- data parallelism ---


def _clone_world_group():
    """Returns a group of all ranks that new_group() has made, once for each default group. The first call is collective."""
    global _world_clone
    _require_world()
    world = dist.distributed_c10d._get_default_group()
    if _world_clone is None or _world_clone[1] is not world:
        _world_clone = dist.new_group(range(dist.get_world_size())), world
    return _world_clone[0]


def _get_data_parallel_group():
    _require_world()
    if mesh_device is not None:
        return mesh_device.get_group(mesh_dim="data_parallel")
    if mpu is not None:
        return None if hasattr(mpu, "initialize_sequence_parallel") else mpu.get_data_parallel_group()
    return _clone_world_group()


def _get_data_parallel_group_ranks():
    _require_world()
    return mpu.get_data_parallel_group_ranks() if mpu is not None else range(dist.get_world_size())


def _get_data_parallel_world_size():
    _require_world()
    if mesh_device is not None:
        return dist.get_world_size(_get_data_parallel_group())
    if mpu is None:
        return dist.get_world_size()
    if hasattr(mpu, "initialize_sequence_parallel"):
        return mpu.get_sequence_data_parallel_world_size() // mpu.get_sequence_parallel_world_size()
    return mpu.get_data_parallel_world_size()


def _get_data_parallel_rank():
    if mpu is None and mesh_device is None:
        _require_world()
        return dist.get_rank()
    return dist.get_rank(_get_data_parallel_group())


get_data_parallel_group = _get_data_parallel_group
get_data_parallel_world_size = _get_data_parallel_world_size
get_data_parallel_rank = _get_data_parallel_rank


# --- tensor and model parallelism ---


def _group_of_this_rank():
    """Returns the group that holds this rank alone. The first call is collective."""
    global _own_group
    _require_world()
    world = dist.distributed_c10d._get_default_group()
    if _own_group is None or _own_group[1] is not world:
        groups = [dist.new_group([rank]) for rank in range(dist.get_world_size())]
        _own_group = groups[dist.get_rank()], world
    return _own_group[0]


def get_tensor_model_parallel_group():
    return mpu.get_tensor_model_parallel_group() if mpu is not None else _group_of_this_rank()


def get_model_parallel_group():
    return mpu.get_model_parallel_group() if mpu is not None else _group_of_this_rank()


def get_tensor_model_parallel_world_size():
    return dist.get_world_size(mpu.get_tensor_model_parallel_group()) if mpu is not None else 1


def get_tensor_model_parallel_rank():
    return dist.get_rank(mpu.get_tensor_model_parallel_group()) if mpu is not None else 0


def get_tensor_model_parallel_src_rank():
    """Returns the global rank of the first member of this rank's group."""
    _require_world()
    size = get_tensor_model_parallel_world_size()
    return dist.get_rank() // size * size


get_model_parallel_world_size = get_tensor_model_parallel_world_size
get_model_parallel_rank = get_tensor_model_parallel_rank


def _get_model_parallel_world_size():
    return mpu.get_model_parallel_world_size() if mpu is not None else 1


# --- sequence parallelism ---


def _get_sequence_parallel_world_size():
    if mesh_device is not None:
        return dist.get_world_size(mesh_device.get_group(mesh_dim="sequence_parallel"))
    return mpu.get_sequence_parallel_world_size() if hasattr(mpu, "get_sequence_parallel_world_size") else 1


def _get_sequence_parallel_rank():
    if mesh_device is not None:
        return dist.get_rank(mesh_device.get_group(mesh_dim="sequence_parallel"))
    return mpu.get_sequence_parallel_rank() if hasattr(mpu, "get_sequence_parallel_rank") else 0


def _get_sequence_parallel_group():
    """Returns the group over which sequences are cut. Raises KeyError where none is."""
    if mesh_device is not None:
        return mesh_device.get_group(mesh_dim="sequence_parallel")
    if hasattr(mpu, "get_sequence_parallel_group"):
        return mpu.get_sequence_parallel_group()
    raise KeyError("no sequence parallel group exists: neither an mpu nor a device mesh has one")


def _get_sequence_data_parallel_world_size():
    if hasattr(mpu, "get_sequence_data_parallel_world_size"):
        return mpu.get_sequence_data_parallel_world_size()
    return _get_data_parallel_world_size()


def _get_sequence_data_parallel_rank():
    if hasattr(mpu, "get_sequence_data_parallel_rank"):
        return mpu.get_sequence_data_parallel_rank()
    return _get_data_parallel_rank()


def _get_sequence_data_parallel_group():
    if hasattr(mpu, "get_sequence_data_parallel_group"):
        return mpu.get_sequence_data_parallel_group()
    return _get_data_parallel_group()


def _get_broadcast_src_rank():
    """Returns the global rank of the group's first member, which has the weights that the others get."""
    return dist.get_global_rank(_get_sequence_data_parallel_group(), 0)


# --- expert parallelism, of which there are no groups ---


def _ensure_divisibility(numerator, denominator):
    assert numerator % denominator == 0, f"{numerator} is not divisible by {denominator}"


def _get_expert_parallel_ranks(
    world_size, tensor_parallel_size_, expert_parallel_size_, pipeline_parallel_size_=1, use_data_before_expert_parallel_=False
):
    """Returns the ranks of the expert-parallel groups, and of the groups that hold the same experts.

    A data-parallel group, of the ranks with one place in tensor and pipeline parallelism, is cut into runs of
    expert_parallel_size_ ranks; the ranks at one place in the runs hold the same experts. use_data_before_expert_parallel_: a run
    takes ranks as far apart as possible instead of neighbours.
    """
    _ensure_divisibility(world_size, tensor_parallel_size_ * pipeline_parallel_size_)
    stage_size = world_size // pipeline_parallel_size_
    data_size = stage_size // tensor_parallel_size_
    _ensure_divisibility(data_size, expert_parallel_size_)
    expert_parallel, expert_data_parallel = [], []
    for stage_begin in range(0, world_size, stage_size):
        for first in range(stage_begin, stage_begin + tensor_parallel_size_):
            ranks = list(range(first, stage_begin + stage_size, tensor_parallel_size_))
            if use_data_before_expert_parallel_:
                apart = data_size // expert_parallel_size_
                ranks = [rank for begin in range(apart) for rank in ranks[begin::apart]]
            runs = [ranks[begin : begin + expert_parallel_size_] for begin in range(0, data_size, expert_parallel_size_)]
            expert_parallel.extend(runs)
            expert_data_parallel.extend(list(same) for same in zip(*runs))
    return expert_parallel, expert_data_parallel


def _get_max_expert_size():
    """Returns the size of the largest expert-parallel group; None, since there is none."""


def _get_expert_parallel_group_dict():
    return {}


def _get_expert_data_parallel_group_dict():
    return {}


def _get_expert_model_parallel_world_size():
    return expert_tensor_parallel_world_size


def _no_expert_group(group_name):
    raise KeyError(f"expert parallel group {group_name!r} does not exist: {_NO_EXPERTS}")


_get_expert_parallel_group = _no_expert_group
_get_expert_parallel_group_ranks = _no_expert_group
_get_expert_parallel_world_size = _no_expert_group
_get_expert_parallel_rank = _no_expert_group
_get_expert_parallel_src_rank = _no_expert_group
_get_expert_data_parallel_group = _no_expert_group
_get_expert_data_parallel_group_ranks = _no_expert_group
_get_expert_data_parallel_world_size = _no_expert_group
_get_expert_data_parallel_rank = _no_expert_group
_get_expert_broadcast_src_rank = _no_expert_group


# --- secondary partitions of parameters, of which there are none ---


def _get_zero_param_intra_parallel_group():
    """Returns the group of a secondary partition; None, since there is none."""


def _zero_param_parallel_is_initialized():
    return False
