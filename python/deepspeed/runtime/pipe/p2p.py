"""Sends and receives between adjacent stages, for programs. An engine's stages use the core's connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.distributed as dist

if TYPE_CHECKING:
    from typing import Any

    import torch

    from deepspeed.runtime.pipe.topology import PipelineParallelGrid

_grid: PipelineParallelGrid | None = None


def can_send_recv() -> bool:
    return True


def init_process_groups(grid: PipelineParallelGrid) -> None:
    """Sets the grid whose stages send() and recv() name."""
    global _grid
    assert grid.pipe_parallel_size > 1, "There is no pipeline parallelism"
    _grid = grid


def _rank_of(stage: int) -> int:
    """Returns the rank of an adjacent stage. The first and the last stage are adjacent."""
    assert _grid is not None, "init_process_groups() was not called"
    distance = abs(_grid.get_stage_id() - stage)
    assert distance in (1, _grid.pipe_parallel_size - 1), "Functionality currently limited to send and receive between adjacent ranks only"
    return _grid.stage_to_global(stage_id=stage)


def send(tensor: torch.Tensor, dest_stage: int, async_op: bool = False) -> None:
    assert not async_op, "Doesn't support async_op true"
    return dist.send(tensor, _rank_of(dest_stage))


def recv(tensor: torch.Tensor, src_stage: int, async_op: bool = False) -> int:
    assert not async_op, "Doesn't support async_op true"
    return dist.recv(tensor, _rank_of(src_stage))


def wait() -> None:
    """Waits for the device. Sends and receives are complete when they return."""
    from deepspeed.accelerator import get_accelerator

    get_accelerator().synchronize()


def send_obj(msg: object, dest: int) -> None:
    """Sends any picklable object to a rank."""
    dist.send_object_list([msg], dst=dest)


def recv_obj(sender: int) -> Any:
    """Returns the object that a rank has sent. Its tensors are on this rank's device."""
    import torch
    from torch.utils import _pytree as pytree

    from deepspeed.accelerator import get_accelerator

    received = [None]
    dist.recv_object_list(received, src=sender)
    device = get_accelerator().current_device_name()
    return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), received[0])
