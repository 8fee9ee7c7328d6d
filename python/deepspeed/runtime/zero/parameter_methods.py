"""Defines methods of a partitioned parameter. Each function returns the method of one parameter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from deepspeed import _core
from deepspeed._errors import NotSupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

_gathered = torch.utils.weak.WeakIdKeyDictionary()  # open scopes of all_gather(), until partition()


def partition_numel(param: torch.Tensor) -> Callable[[], int]:
    """Returns the method that tells how many of the parameter's elements a rank has."""
    return lambda: _core.shard_numel(param)


class _Whole:
    """Represents the finished work of all_gather()."""

    def wait(self, handle_dependency: bool = True) -> None:
        """Returns at once."""


def all_gather_of(param: torch.Tensor) -> Callable[..., _Whole | None]:
    """Returns the method that makes parameters whole until partition(). Collective."""

    def all_gather(param_list: Iterable[torch.Tensor] | None = None, async_op: bool = False, **_: object) -> _Whole | None:
        wanted = [param] if param_list is None else list(param_list)
        for one in wanted:
            if one not in _gathered:
                _gathered[one] = _core.GatheredParameters([one], None)
        return _Whole() if async_op else None

    return all_gather


def all_gather_coalesced_of(param: torch.Tensor) -> Callable[..., _Whole | None]:
    """Returns the method that makes several parameters whole and returns a handle."""
    return lambda params, **_: all_gather_of(param)(params, async_op=True)


def partition_of(param: torch.Tensor) -> Callable[..., None]:
    """Returns the method that ends an all_gather(). Collective."""

    def partition(param_list: Iterable[torch.Tensor] | None = None, has_been_updated: bool = False, **_: object) -> None:
        if has_been_updated:
            raise NotSupportedError(
                "partition(has_been_updated=True) is not supported: change parameters inside of GatheredParameters with a modifier_rank"
            )
        for one in [param] if param_list is None else param_list:
            if one in _gathered:
                _gathered.pop(one).close()

    return partition


def ds_summary_of(param: Any) -> Callable[..., dict[str, Any]]:
    """Returns the method that describes the parameter as a dict."""

    def ds_summary(slice_shape: object = None, use_debug_name: bool = False, **_: object) -> dict[str, Any]:
        return {
            "id": param.ds_id,
            "status": param.ds_status.name,
            "numel": param.numel(),
            "ds_numel": param.numel(),
            "shape": tuple(param.shape),
            "ds_shape": tuple(param.shape),
            "requires_grad": param.requires_grad,
            "grad_shape": tuple(param.grad.shape) if param.grad is not None else None,
            "persist": param.ds_persist,
            "ds_tensor.shape": tuple(param.ds_tensor.shape) if param.ds_tensor is not None else None,
        }

    return ds_summary


def convert_to_zero_parameters_of(param: torch.Tensor) -> Callable[[Iterable[torch.Tensor]], None]:
    """Returns the method that partitions more parameters, until an engine takes them over. Collective."""

    def convert_to_zero_parameters(param_list: Iterable[torch.Tensor]) -> None:
        given = [(f"parameter {index} of convert_to_zero_parameters()", one) for index, one in enumerate(param_list)]
        whole = [entry for entry in given if not _core.is_partitioned(entry[1])]
        _core.partition_module(_core.ranks_of_parameter(param), whole, None, "none", False, None)

    return convert_to_zero_parameters
