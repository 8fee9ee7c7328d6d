"""Sends and receives between neighbouring stages, for programs of their own. An engine's stages talk over the core's connections."""

import torch.distributed as dist

_grid = None


def can_send_recv():
    return True


def init_process_groups(grid):
    """Takes the grid whose stages send() and recv() name."""
    global _grid
    assert grid.pipe_parallel_size > 1, "There is no pipeline parallelism"
    _grid = grid


def _rank_of(stage):
    """Returns the rank of a neighbouring stage; the first and the last one are neighbours, too."""
    distance = abs(_grid.get_stage_id() - stage)
    assert distance in (1, _grid.pipe_parallel_size - 1), "Functionality currently limited to send and receive between adjacent ranks only"
    return _grid.stage_to_global(stage_id=stage)


def send(tensor, dest_stage, async_op=False):
    assert not async_op, "Doesn't support async_op true"
    return dist.send(tensor, _rank_of(dest_stage))


def recv(tensor, src_stage, async_op=False):
    assert not async_op, "Doesn't support async_op true"
    return dist.recv(tensor, _rank_of(src_stage))


def wait():
    """Waits for the device: sends and receives have ended when they return."""
    from deepspeed.accelerator import get_accelerator

    get_accelerator().synchronize()


def send_obj(msg, dest):
    """Sends any object that can be pickled to a rank."""
    dist.send_object_list([msg], dst=dest)


def recv_obj(sender):
    """Returns the object that a rank has sent; its tensors lie on this rank's device."""
    from deepspeed.accelerator import get_accelerator
    from torch.utils import _pytree as pytree
    import torch

    received = [None]
    dist.recv_object_list(received, src=sender)
    device = get_accelerator().current_device_name()
    return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), received[0])
