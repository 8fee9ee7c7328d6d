"""Adds stage 3's attributes to parameters: number, state, shard, and DeepSpeed's methods to gather."""

from __future__ import annotations

import copy
import enum
from typing import TYPE_CHECKING

import torch

from deepspeed import _core
from deepspeed.runtime.zero import parameter_methods as _methods
from deepspeed.utils.z3_leaf_module import leaf_module_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, SupportsIndex


class ZeroParamType(enum.Enum):
    NORMAL = 1
    PARTITIONED = 2
    REMOTE = 3


class ZeroParamStatus(enum.Enum):
    AVAILABLE = 1
    NOT_AVAILABLE = 2
    INFLIGHT = 3


used_elsewhere = torch.utils.weak.WeakIdKeyDictionary()  # parameters that another module has used or announced


def is_zero_param(parameter: object) -> bool:
    """Returns whether stage 3 has partitioned the tensor. The call partitions a parameter that zero.Init still keeps whole."""
    if not isinstance(parameter, torch.Tensor):
        return False
    if not _core.is_partitioned(parameter):
        _core.partition_newborn(parameter)
    return _core.is_partitioned(parameter)


class Shard(torch.Tensor):
    """Shows this rank's padded shard of a partitioned parameter, as a view of core memory.

    Values that are assigned to its `data` become the shard's, and later gathers use them. Writes in place by operators are not noticed:
    the optimizer's masters, and a parameter that is whole, keep their values.
    """

    _of: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]  # as torch.nn.Parameter has it

    @property
    def data(self) -> torch.Tensor:
        return torch.Tensor.detach(self)

    @data.setter
    def data(self, values: torch.Tensor) -> None:
        _core.set_shard(self._of, values)

    @property
    def ds_numel(self) -> int:
        """The number of elements, with padding."""
        return self.numel()

    @property
    def status(self) -> ZeroParamStatus:
        return ZeroParamStatus.AVAILABLE

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.Tensor:
        return copy.deepcopy(self.as_subclass(torch.Tensor), memo)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """Saves an ordinary tensor to files."""
        return self.as_subclass(torch.Tensor).__reduce_ex__(protocol)


def _shard(param: torch.Tensor) -> Shard | None:
    memory = _core.shard_of(param)
    if memory is None:
        return None
    shard = memory.as_subclass(Shard)
    shard._of = param
    return shard


class _OfPartitioned:
    """Defines an attribute of Parameter that only partitioned parameters have. So hasattr(p, "ds_id") tells them apart."""

    def __init__(self, name: str, read: Callable[[Any], Any]) -> None:
        self._name = name
        self._read = read

    def __get__(self, param: torch.Tensor | None, owner: type | None = None) -> Any:
        if param is None:
            return self
        if not is_zero_param(param):
            raise AttributeError(f"{self._name}: the parameter is not partitioned")
        return self._read(param)


for _name, _read in {
    "ds_status": lambda param: ZeroParamStatus[str(_core.status_of(param))],
    "ds_id": _core.param_id,
    "ds_shape": lambda param: param.shape,
    "ds_numel": lambda param: param.numel(),
    "ds_tensor": _shard,
    "ds_persist": _core.is_persistent,
    "ds_z3_leaf_module": leaf_module_of,
    "ds_active_sub_modules": lambda param: set(),  # the modules that keep it whole: here operators do, while they run
    "is_external_param": lambda param: param in used_elsewhere,
    "partition_numel": _methods.partition_numel,
    "all_gather": _methods.all_gather_of,
    "all_gather_coalesced": _methods.all_gather_coalesced_of,
    "partition": _methods.partition_of,
    "convert_to_zero_parameters": _methods.convert_to_zero_parameters_of,
    "ds_summary": _methods.ds_summary_of,
}.items():
    setattr(torch.nn.Parameter, _name, _OfPartitioned(_name, _read))


_torch_repr: Callable[[torch.nn.Parameter], str] = torch.nn.Parameter.__repr__


def _repr(param: torch.nn.Parameter) -> str:
    """Names a partitioned parameter without its values, for tracebacks and debuggers. The values are not on this rank."""
    if not _core.is_partitioned(param):
        return _torch_repr(param)
    try:
        if _core.status_of(param) == ZeroParamStatus.AVAILABLE.name:
            return _torch_repr(param)
    except RuntimeError:  # a quantized parameter's rounded values are here, but must not be read
        pass
    return f"Parameter(partitioned, shape={tuple(param.shape)}, dtype={param.dtype}, requires_grad={param.requires_grad})"


torch.nn.Parameter.__repr__ = _repr  # type: ignore[method-assign,assignment]  # replaced for the process
