"""Collectives of scripts run over torch.distributed's groups; the engine's have connections of their own."""
import os

import torch.distributed as dist
from torch.distributed import (
    P2POp,
    ReduceOp,
    all_gather,
    all_gather_into_tensor,
    all_gather_object,
    all_reduce,
    all_reduce_coalesced,
    all_to_all,
    all_to_all_single,
    barrier,
    batch_isend_irecv,
    broadcast,
    broadcast_object_list,
    destroy_process_group,
    gather,
    get_backend,
    get_rank,
    get_world_size,
    irecv,
    is_available,
    is_initialized,
    isend,
    monitored_barrier,
    new_group,
    recv,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    scatter,
    send,
)
from torch.distributed.distributed_c10d import default_pg_timeout
from torch.distributed.distributed_c10d import _get_global_rank as get_global_rank
from torch.distributed.distributed_c10d import get_process_group_ranks as get_all_ranks_from_group

from deepspeed import _world


def init_distributed(
    dist_backend=None,
    auto_mpi_discovery=True,
    distributed_port=29500,
    verbose=True,
    timeout=None,
    init_method=None,
    dist_init_required=None,
    config=None,
    rank=-1,
    world_size=-1,
):
    """Joins the job that the environment describes, once; a process without RANK is a world of one."""
    if dist_init_required is False and not dist.is_initialized():
        raise AssertionError(
            "Distributed backend is not initialized. Please set dist_init_required to True or initialize before calling "
            "deepspeed.initialize()"
        )
    _world.ensure_world(dist_backend, timeout, init_method, rank, world_size, distributed_port, auto_mpi_discovery)


def get_local_rank():
    """Returns the rank on this machine."""
    return int(os.environ.get("LOCAL_RANK", 0))


def get_world_group():
    """Returns the group of all ranks."""
    return dist.group.WORLD


def inference_all_reduce(tensor, op=ReduceOp.SUM, group=None):
    return all_reduce(tensor, op=op, group=group)


def allgather_fn(output_tensor, input_tensor, group=None, async_op=False, debug=None):
    return all_gather_into_tensor(output_tensor, input_tensor, group=group, async_op=async_op)


def reduce_scatter_fn(output_tensor, tensor, op=ReduceOp.SUM, group=None, async_op=False, prof=False, debug=None):
    return reduce_scatter_tensor(output_tensor, tensor, op=op, group=group, async_op=async_op)


def all_gather_coalesced(output_tensors, input_tensors, group=None, async_op=False):
    works = [
        all_gather_into_tensor(output, tensor, group=group, async_op=async_op)
        for output, tensor in zip(output_tensors, input_tensors)
    ]
    return works[-1] if async_op and works else None


def has_all_gather_into_tensor():
    return True


def has_reduce_scatter_tensor():
    return True


def has_coalescing_manager():
    return False


def configure(deepspeed_config=None, enabled=None, prof_all=None, prof_ops=None, verbose=None, debug=None):
    """Configures the log of collectives. Raises NotSupportedError where it is switched on: there is none yet."""
    if enabled or (deepspeed_config is not None and getattr(getattr(deepspeed_config, "comms_config", None), "comms_logger_enabled", False)):
        from deepspeed._errors import NotSupportedError

        raise NotSupportedError("comms_logger is not supported yet; leave it off")


def initialize_mesh_device(mesh_shape, mesh_dim_names):
    """Makes a mesh of devices with axes of these sizes and names."""
    from torch.distributed.device_mesh import init_device_mesh

    from deepspeed.accelerator import get_accelerator

    return init_device_mesh(get_accelerator()._name, tuple(mesh_shape), mesh_dim_names=tuple(mesh_dim_names))
