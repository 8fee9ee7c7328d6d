"""Provides helpers for ZeRO."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from deepspeed._errors import ZeRORuntimeException as ZeRORuntimeException  # scripts import it from here
from deepspeed._lazy import lazy
from deepspeed.runtime.zero.partition_parameters import is_zero_param as is_zero_param

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence, Sized
    from typing import Any

if TYPE_CHECKING:
    from deepspeed.runtime.zero.supported_optimizers import ZERO_SUPPORTED_OPTIMIZERS as ZERO_SUPPORTED_OPTIMIZERS
else:
    __getattr__ = lazy(__name__, names={"ZERO_SUPPORTED_OPTIMIZERS": "deepspeed.runtime.zero.supported_optimizers"})


def is_zero_supported_optimizer(optimizer: object) -> bool:
    """Returns whether the optimizer's class runs at all stages without zero_allow_untested_optimizer."""
    from deepspeed.runtime.zero.supported_optimizers import ZERO_SUPPORTED_OPTIMIZERS

    return type(optimizer) in ZERO_SUPPORTED_OPTIMIZERS


def get_norm_dtype() -> torch.dtype:
    """Returns the dtype in which norms are summed."""
    return torch.double


def get_lst_from_rank0(lst: Iterable[int]) -> list[int]:
    """Returns rank 0's list of integers on all ranks. All lists have the same length. Collective."""
    held = [list(lst)]
    dist.broadcast_object_list(held, src=0)
    return held[0]


def assert_lst_len_same_as_other_ranks(lst: Sized) -> None:
    """Raises RuntimeError if the list's length differs from rank 0's. Collective."""
    expected = get_lst_from_rank0([len(lst)])[0]
    if len(lst) != expected:
        raise RuntimeError(f"rank {dist.get_rank()} has a list of {len(lst)}, rank 0 one of {expected}")


def assert_ints_same_as_other_ranks(ints: Sequence[int]) -> None:
    """Raises RuntimeError if the list differs from rank 0's. Collective."""
    expected = get_lst_from_rank0(ints)
    if list(ints) != expected:
        raise RuntimeError(f"rank {dist.get_rank()} has {list(ints)}, rank 0 has {expected}")


def is_builtin_type(obj: object) -> bool:
    """Returns whether the object's class is built into Python."""
    return type(obj).__module__ == "builtins"


def isinstance_namedtuple(obj: object) -> bool:
    """Returns whether the object's class was made by namedtuple."""
    return isinstance(obj, tuple) and hasattr(obj, "_fields") and hasattr(obj, "_asdict")


def apply_to_tensors_only(function: Callable[[torch.Tensor], Any], value: Any, warning_msg_fn: Callable[[Any], str] | None = None) -> Any:
    """Applies the function to each tensor in lists, tuples and dicts. Dicts change in place.

    warning_msg_fn(object) returns a warning for other objects, whose tensors are not found.
    """
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, (list, tuple)):
        made = [apply_to_tensors_only(function, item) for item in value]
        return type(value)(*made) if isinstance_namedtuple(value) else type(value)(made)
    if isinstance(value, dict):
        for key in value:
            value[key] = apply_to_tensors_only(function, value[key])
        return value
    if warning_msg_fn is not None and not is_builtin_type(value):
        from deepspeed.utils.logging import logger

        logger.warning_once(warning_msg_fn(value))
    return value


def get_mapping_to_flat_buffer(tensors: Sequence[torch.Tensor]) -> list[tuple[torch.Tensor, int, int]]:
    """Returns (tensor, offset, elements) for each tensor in a buffer that holds all in order."""
    places, offset = [], 0
    for tensor in tensors:
        places.append((tensor, offset, tensor.numel()))
        offset += tensor.numel()
    return places


def defragment(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Moves tensors of one dtype and device into one new buffer, and returns it. The tensors become views of the buffer."""
    if len({(tensor.dtype, tensor.device) for tensor in tensors}) != 1:
        raise ValueError("defragment() needs tensors of one dtype on one device")
    places = get_mapping_to_flat_buffer(tensors)
    device = tensors[0].device
    on_host = torch.empty(sum(tensor.numel() for tensor in tensors), dtype=tensors[0].dtype)
    for tensor, offset, count in places:
        on_host[offset : offset + count].copy_(tensor.detach().reshape(-1))
        tensor.data = torch.empty(0, dtype=tensor.dtype, device=device)  # frees the old memory before the new one is allocated
    buffer = on_host.to(device)
    for tensor, offset, count in places:
        tensor.data = buffer[offset : offset + count]
    return buffer
