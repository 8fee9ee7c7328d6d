"""Runs scripts' collectives on torch.distributed's groups; the engine has its own connections.

Collectives that move data also take DeepSpeed's arguments `prof`, `log_name` and `debug`. They are timed while the log is on
(configure(enabled=True), log_summary()).
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING

import torch.distributed as dist
from torch.distributed import (
    P2POp as P2POp,
    ReduceOp as ReduceOp,
    batch_isend_irecv as batch_isend_irecv,
    destroy_process_group as destroy_process_group,
    get_backend as get_backend,
    get_rank as get_rank,
    get_world_size as get_world_size,
    is_available as is_available,
    is_initialized as is_initialized,
    new_group as new_group,
)
from torch.distributed.distributed_c10d import default_pg_timeout as default_pg_timeout

from deepspeed import _world
from deepspeed.comm.constants import *
from deepspeed.comm.logged import comms_logger, timed_op
from deepspeed.comm.utils import *

if TYPE_CHECKING:
    import datetime
    from collections.abc import Sequence
    from typing import Any

    import torch
    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh

get_all_ranks_from_group = dist.get_process_group_ranks
get_global_rank = dist.distributed_c10d._get_global_rank

all_gather = timed_op(dist.all_gather)
all_gather_object = timed_op(dist.all_gather_object)
all_reduce = timed_op(dist.all_reduce)
all_reduce_coalesced = timed_op(dist.all_reduce_coalesced)
all_to_all = timed_op(dist.all_to_all)
all_to_all_single = timed_op(dist.all_to_all_single, keywords={"tensor": "input"})
barrier = timed_op(dist.barrier)
broadcast = timed_op(dist.broadcast)
broadcast_object_list = timed_op(dist.broadcast_object_list)
gather = timed_op(dist.gather)
irecv = timed_op(dist.irecv)
isend = timed_op(dist.isend)
monitored_barrier = timed_op(dist.monitored_barrier)
recv = timed_op(dist.recv)
reduce = timed_op(dist.reduce)
reduce_scatter = timed_op(dist.reduce_scatter)
scatter = timed_op(dist.scatter)
send = timed_op(dist.send)


def _as_vector(tensor: torch.Tensor) -> torch.Tensor:
    # Gloo refuses tensors without dimensions, NCCL takes them.
    return tensor.view(1) if tensor.dim() == 0 else tensor


@functools.partial(timed_op, keywords={"tensor": "input_tensor"})
def all_gather_into_tensor(
    output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: ProcessGroup | None = None, async_op: bool = False
) -> dist.Work | None:
    work: dist.Work | None = dist.all_gather_into_tensor(output_tensor, _as_vector(input_tensor), group=group, async_op=async_op)
    return work


@functools.partial(timed_op, keywords={"output_tensor": "output", "tensor": "input"})
def reduce_scatter_tensor(
    output: torch.Tensor,
    input: torch.Tensor,
    op: ReduceOp.RedOpType = ReduceOp.SUM,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> dist.Work | None:
    work: dist.Work | None = dist.reduce_scatter_tensor(_as_vector(output), input, op=op, group=group, async_op=async_op)
    return work


def init_distributed(
    dist_backend: str | None = None,
    auto_mpi_discovery: bool = True,
    distributed_port: int = 29500,
    verbose: bool = True,
    timeout: datetime.timedelta | None = None,
    init_method: str | None = None,
    dist_init_required: bool | None = None,
    config: object = None,
    rank: int = -1,
    world_size: int = -1,
) -> None:
    """Joins the job that the environment describes, once.

    A process without RANK is a world of one. dist_backend: "gloo" or "nccl"; None: the accelerator's. auto_mpi_discovery: takes ranks
    from the variables of Open MPI, MPICH or Slurm. distributed_port: for the rendezvous if MASTER_PORT is not set. timeout: of
    collectives. init_method, rank, world_size: as for torch.distributed.init_process_group(); -1: from the environment.
    dist_init_required: False asserts that the group exists. verbose and config have no effect. Raises CommError if the ranks do not
    connect in time.
    """
    if dist_init_required is False and not dist.is_initialized():
        raise AssertionError(
            "Distributed backend is not initialized. Please set dist_init_required to True or initialize before calling "
            "deepspeed.initialize()"
        )
    _world.ensure_world(dist_backend, timeout, init_method, rank, world_size, distributed_port, auto_mpi_discovery)


def get_local_rank() -> int:
    """Returns the rank on this machine."""
    return int(os.environ.get("LOCAL_RANK", 0))


def get_world_group() -> ProcessGroup | None:
    """Returns the group of all ranks."""
    return dist.group.WORLD


@timed_op
def inference_all_reduce(
    tensor: torch.Tensor, op: ReduceOp.RedOpType = ReduceOp.SUM, group: ProcessGroup | None = None, async_op: bool = False
) -> dist.Work | None:
    work: dist.Work | None = dist.all_reduce(tensor, op=op, group=group, async_op=async_op)
    return work


def allgather_fn(
    output_tensor: torch.Tensor,
    input_tensor: torch.Tensor,
    group: ProcessGroup | None = None,
    async_op: bool = False,
    debug: bool | None = None,
) -> dist.Work | None:
    return all_gather_into_tensor(output_tensor, input_tensor, group=group, async_op=async_op)


def reduce_scatter_fn(
    output_tensor: torch.Tensor,
    tensor: torch.Tensor,
    op: ReduceOp.RedOpType = ReduceOp.SUM,
    group: ProcessGroup | None = None,
    async_op: bool = False,
    prof: bool = False,
    debug: bool | None = None,
) -> dist.Work | None:
    return reduce_scatter_tensor(output_tensor, tensor, op=op, group=group, async_op=async_op, prof=prof)


def all_gather_coalesced(
    output_tensors: Sequence[torch.Tensor], input_tensors: Sequence[torch.Tensor], group: ProcessGroup | None = None, async_op: bool = False
) -> dist.Work | None:
    works = [
        all_gather_into_tensor(output, tensor, group=group, async_op=async_op) for output, tensor in zip(output_tensors, input_tensors)
    ]
    return works[-1] if async_op and works else None


def has_all_gather_into_tensor() -> bool:
    return True


def has_reduce_scatter_tensor() -> bool:
    return True


def has_coalescing_manager() -> bool:
    return False


def has_all_reduce_coalesced() -> bool:
    return True


def configure(
    deepspeed_config: Any = None,
    enabled: bool | None = None,
    prof_all: bool | None = None,
    prof_ops: Sequence[str] | None = None,
    verbose: bool | None = None,
    debug: bool | None = None,
) -> None:
    """Configures the log of this module's collectives, which leaves out the engine's own."""
    if deepspeed_config is not None:
        comms_logger.configure(deepspeed_config.comms_config)
    given = dict(enabled=enabled, prof_all=prof_all, prof_ops=prof_ops, verbose=verbose, debug=debug)
    for name, value in given.items():
        if value is not None:
            setattr(comms_logger, name, value)


def log_summary(show_straggler: bool = False, return_dict: bool = False) -> dict[str, Any] | None:
    """Prints the log on rank 0, and returns it if return_dict is set. Collective."""
    barrier(log_name="log_summary_barrier")
    result = comms_logger.log_all(print_log=get_rank() == 0, show_straggler=show_straggler, return_dict=return_dict)
    barrier(log_name="log_summary_barrier")
    return result


def reset_log() -> None:
    comms_logger.reset_data()


def has_comm_data() -> bool:
    return comms_logger.has_data()


def get_comm_operation_count() -> int:
    return comms_logger.get_total_operations()


def get_logged_comm_ops() -> list[str]:
    return comms_logger.get_operation_names()


def initialize_mesh_device(mesh_shape: Sequence[int], mesh_dim_names: Sequence[str]) -> DeviceMesh:
    """Makes a device mesh with axes of these sizes and names."""
    from torch.distributed.device_mesh import init_device_mesh

    from deepspeed.accelerator import get_accelerator

    return init_device_mesh(get_accelerator()._name, tuple(mesh_shape), mesh_dim_names=tuple(mesh_dim_names))
