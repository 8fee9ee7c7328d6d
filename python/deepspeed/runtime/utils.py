"""Provides helpers for training scripts."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from deepspeed.runtime.backward.output_hooks import (
    OutputBackwardHookManager as OutputBackwardHookManager,
    check_internal_apis_for_count_used_parameters as check_internal_apis_for_count_used_parameters,
    count_used_parameters_in_backward as count_used_parameters_in_backward,
    maybe_loss_for_backward as maybe_loss_for_backward,
    register_output_backward_hooks as register_output_backward_hooks,
)
from deepspeed.runtime.norms import (
    CheckOverflow as CheckOverflow,
    clip_grad_norm_ as clip_grad_norm_,
    clip_tensors_by_global_norm as clip_tensors_by_global_norm,
    get_global_norm as get_global_norm,
    get_global_norm_of_tensors as get_global_norm_of_tensors,
    get_grad_norm as get_grad_norm,
    get_weight_norm as get_weight_norm,
    has_inf_or_nan as has_inf_or_nan,
    is_model_parallel_parameter as is_model_parallel_parameter,
)
from deepspeed.runtime.partitions import (
    PartitionedTensor as PartitionedTensor,
    partition_balanced as partition_balanced,
    partition_uniform as partition_uniform,
    prefix_sum_inc as prefix_sum_inc,
)
from deepspeed.utils.logging import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, TypeVar

    T = TypeVar("T")


class DummyOptim:
    """Stands for an optimizer of which only the groups are used."""

    def __init__(self, params: object) -> None:
        self.param_groups = [{"params": params}]


def noop_decorator(func: T) -> T:
    """Returns the function itself."""
    return func


def ensure_directory_exists(filename: str) -> None:
    """Makes the folder of a file."""
    os.makedirs(os.path.dirname(filename), exist_ok=True)


def set_random_seed(seed: int) -> None:
    """Seeds the generators of Python, NumPy and torch."""
    random.seed(seed)
    torch.manual_seed(seed)
    try:
        import numpy
    except ImportError:
        return
    numpy.random.seed(seed)


def copy_to_device(item: Any, device: torch.device | str, criterion_func: Callable[[Any], bool]) -> Any:
    """Returns nested lists, tuples and dicts with copies of chosen items on the device. criterion_func chooses them."""
    return _map(item, lambda leaf: leaf.detach().clone().to(device) if criterion_func(leaf) else leaf)


def move_to_device(item: Any, device: torch.device | str, criterion_func: Callable[[Any], bool] | None = None) -> Any:
    """Returns nested lists, tuples and dicts with their tensors on the device. criterion_func may choose other items."""
    chosen = criterion_func or torch.is_tensor
    return _map(item, lambda leaf: leaf.to(device) if chosen(leaf) else leaf)


def _map(item: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(item, dict):
        return {key: _map(value, change) for key, value in item.items()}
    if isinstance(item, (list, tuple)):
        made = [_map(value, change) for value in item]
        return type(item)(*made) if hasattr(item, "_fields") else type(item)(made)
    return change(item)


def filter_empty_parameters(params: Any) -> list[Any]:
    """Removes parameters without elements, from a list or from groups."""
    if isinstance(params, torch.Tensor):
        return [params] if params.numel() > 0 else []
    params = list(params)
    if params and isinstance(params[0], dict):
        return [dict(group, params=[param for param in group["params"] if param.numel() > 0]) for group in params]
    return [param for param in params if param.numel() > 0]


def get_ma_status() -> int:
    """Returns the allocated bytes of the device; 0 on ranks other than the first."""
    if dist.is_initialized() and dist.get_rank() != 0:
        return 0
    from deepspeed.accelerator import get_accelerator

    return get_accelerator().memory_allocated()


def empty_cache() -> None:
    from deepspeed.accelerator import get_accelerator

    get_accelerator().empty_cache()
    get_accelerator().reset_peak_memory_stats()


def see_memory_usage(message: object, force: bool = False) -> None:
    """Logs the memory of the device and the machine on rank 0 if force is set."""
    if not force or (dist.is_initialized() and dist.get_rank() != 0):
        return
    from deepspeed.accelerator import get_accelerator

    device = get_accelerator()
    gigabyte = 1024**3
    free, total = os.sysconf("SC_AVPHYS_PAGES"), os.sysconf("SC_PHYS_PAGES")
    page = os.sysconf("SC_PAGE_SIZE")
    logger.info(message)
    logger.info(
        f"MA {device.memory_allocated() / gigabyte:.2f} GB         Max_MA {device.max_memory_allocated() / gigabyte:.2f} GB"
        f"         CA {device.memory_cached() / gigabyte:.2f} GB         Max_CA {device.max_memory_cached() / gigabyte:.2f} GB"
    )
    used = (total - free) * page / gigabyte
    logger.info(f"CPU Virtual Memory:  used = {used:.2f} GB, percent = {100 * (total - free) / total:.1f}%")
    device.reset_peak_memory_stats()


def memory_status(msg: object, print_rank: int = -1, reset_max: bool = False) -> None:
    see_memory_usage(msg, force=print_rank in (-1, dist.get_rank() if dist.is_initialized() else 0))


def call_to_str(base: str, *args: object, **kwargs: object) -> str:
    """Returns a call as text: call_to_str("f", 1, x=2) is "f(1, x=2)"."""
    parts = [repr(arg) for arg in args] + [f"{key}={value!r}" for key, value in kwargs.items()]
    return f"{base}({', '.join(parts)})"


def get_only_unique_item(items: Iterable[T]) -> T:
    """Returns the single distinct value of the items. Raises RuntimeError if there are several."""
    values = set(items)
    if len(values) != 1:
        raise RuntimeError(f"expected there to be only one unique element in {items}")
    return values.pop()


def align_dense_tensors(tensor_list: list[torch.Tensor], alignment: int) -> list[torch.Tensor]:
    """Returns the tensors, with zeros appended up to a multiple of the alignment. The zeros are a tensor of their own."""
    missing = -sum(tensor.numel() for tensor in tensor_list) % alignment
    return tensor_list + [tensor_list[0].new_zeros(missing)] if missing else tensor_list


def get_tensor_bytes(item: Any) -> int:
    """Returns the bytes of all tensors in nested lists, tuples and dicts."""
    if torch.is_tensor(item):
        return item.numel() * item.element_size()
    if isinstance(item, dict):
        item = list(item.values())
    return sum(get_tensor_bytes(value) for value in item) if isinstance(item, (list, tuple)) else 0


def get_inactive_params(param_list: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Returns stage 3's parameters that are currently partitioned."""
    return [param for param in param_list if getattr(getattr(param, "ds_status", None), "name", "") == "NOT_AVAILABLE"]


def compare_tensors_in_structures(inputs1: Any, inputs2: Any) -> bool:
    """Returns whether two nested structures have equal tensors at equal positions."""
    if isinstance(inputs1, torch.Tensor) and isinstance(inputs2, torch.Tensor):
        return torch.equal(inputs1.to(inputs2.device), inputs2)
    if type(inputs1) is not type(inputs2):
        return False
    if isinstance(inputs1, dict):
        return inputs1.keys() == inputs2.keys() and all(compare_tensors_in_structures(inputs1[key], inputs2[key]) for key in inputs1)
    if isinstance(inputs1, (list, tuple)):
        return len(inputs1) == len(inputs2) and all(map(compare_tensors_in_structures, inputs1, inputs2))
    is_equal: bool = inputs1 == inputs2
    return is_equal
