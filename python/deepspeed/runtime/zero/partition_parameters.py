"""Defines zero.Init and zero.GatheredParameters."""

from __future__ import annotations

import contextlib
import enum
import os
import threading
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from deepspeed import _config, _core, _world
from deepspeed._errors import NotSupportedError, UsageError, not_supported_class
from deepspeed.runtime.zero import saved_placeholders as saved_placeholders  # its replacements hold for the process
from deepspeed.runtime.zero.frozen_newborns import FrozenNewborns
from deepspeed.runtime.zero.parameter_attributes import (
    ZeroParamStatus as ZeroParamStatus,
    ZeroParamType as ZeroParamType,
    is_zero_param as is_zero_param,
    used_elsewhere,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any, TypeVar

    from torch.distributed import ProcessGroup
    from typing_extensions import Self

    from deepspeed._types import Mpu
    from deepspeed.accelerator.abstract_accelerator import DeepSpeedAccelerator

    T = TypeVar("T")


_of_thread = threading.local()


class DeepSpeedTensorOverride(enum.Enum):
    """Names DeepSpeed's class by which zero.Init changes the tensors of constructors."""

    dtype = 1
    device = 2


partitioned_param_data_shape = [0]  # DeepSpeed's shape of partitioned parameters, which keep their own shapes here


class GatheredParameters:
    """Makes partitioned parameters whole within a scope, on every rank. Collective.

    They have their own shapes and dtypes. params: a tensor, or an iterable of tensors; None and ordinary tensors are ignored.
    modifier_rank: the rank whose changes all ranks get at the end; None: changes are lost at the end. fwd_module has no effect. enabled:
    False gathers nothing.
    """

    def __init__(
        self,
        params: torch.Tensor | Iterable[torch.Tensor | None],
        modifier_rank: int | None = None,
        fwd_module: torch.nn.Module | None = None,
        enabled: bool = True,
    ) -> None:
        given = [params] if isinstance(params, torch.Tensor) else list(params)
        self.params = [param for param in given if is_zero_param(param)]
        self.src_rank = modifier_rank
        self.enabled = enabled and bool(self.params)
        self._scope: _core.GatheredParameters | None = None

    def __enter__(self) -> None:
        if self.enabled:
            self._scope = _core.GatheredParameters(self.params, self.src_rank)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        scope, self._scope = self._scope, None
        if scope is None:
            return
        if kind is None:
            scope.close()
        else:
            scope.forget()


def make_whole(params: Iterable[torch.Tensor]) -> None:
    """Turns partitioned parameters without an engine into ordinary tensors. Collective.

    They come from zero.Init, or from an engine that no longer exists.
    """
    _core.make_whole(list(params))


CUDAQuantizer = not_supported_class(
    "deepspeed.runtime.zero.partition_parameters.CUDAQuantizer",
    "the engine quantizes what it gathers by itself; set zero_quantized_weights in the config",
)


class MultipleAllGatherHandles:
    """Waits for several handles of gathers."""

    def __init__(self, handles: Iterable[Any]) -> None:
        self.handles = handles

    def wait(self, handle_dependency: bool = True) -> None:
        for handle in self.handles:
            handle.wait(handle_dependency=handle_dependency)


class InsertPostInitMethodToModuleSubClasses:
    """Stands for DeepSpeed's base class of zero.Init.

    Constructors of subclasses are not wrapped: the core sees parameters when they are created.
    """


class Init(InsertPostInitMethodToModuleSubClasses):
    """Partitions the parameters of modules while they are built in its scope. Collective.

    No rank ever holds the whole model. module: is partitioned at once instead. config_dict_or_path, config: the config of the later
    initialize(); its section zero_optimization applies. remote_device: "cpu" or "nvme" for the shards. dtype: of floating-point
    parameters; None: as the config's fp16 and bf16 say. mpu: for model parallelism by the script, as in initialize(): parameters are
    partitioned over its data-parallel ranks. data_parallel_group: these ranks as a group. Without both, parameters are partitioned over
    all ranks, and parts of layers (`tensor_model_parallel`) stay whole until initialize(). enabled: False partitions nothing.
    zero_quantized_weights, zero_quantized_nontrainable_weights: the keys of these names. Raises ConfigError, naming the key, UsageError
    and NotSupportedError.
    """

    def __init__(
        self,
        module: torch.nn.Module | None = None,
        data_parallel_group: ProcessGroup | None = None,
        mem_efficient_linear: bool = True,
        remote_device: str | None = None,
        pin_memory: bool = False,
        config_dict_or_path: Any = None,
        config: Any = None,
        enabled: bool = True,
        dtype: torch.dtype | None = None,
        mpu: Mpu | None = None,
        zero_param_parallel_group: object = None,
        zero_quantized_weights: bool = False,
        zero_quantized_nontrainable_weights: bool = False,
        sequence_data_parallel_group: ProcessGroup | None = None,
        param_swapper: object = None,
    ) -> None:
        if enabled and zero_param_parallel_group is not None:
            raise NotSupportedError("zero.Init(zero_param_parallel_group=...) is not supported; leave it out")
        if enabled and data_parallel_group is not None and sequence_data_parallel_group is not None:
            raise UsageError("zero.Init: got both data_parallel_group and sequence_data_parallel_group, its older name; pass the first")
        self._group = data_parallel_group if data_parallel_group is not None else sequence_data_parallel_group
        if enabled and self._group is None and mpu is not None:
            self._group = mpu.get_data_parallel_group()
        self._ranks: _core.InitRanks | None = None
        self.enabled = enabled
        source = config_dict_or_path if config_dict_or_path is not None else config
        self._config = None if source is None else _init_config(source)
        asked = {
            "zero_quantized_weights": zero_quantized_weights,
            "zero_quantized_nontrainable_weights": zero_quantized_nontrainable_weights,
        }
        if any(asked.values()):
            self._config = self._config or _init_config({"zero_optimization": {"stage": 3}})
            self._config["zero_optimization"].update({key: True for key, value in asked.items() if value})
        self._remote_device = remote_device or "none"
        self._pin_memory = pin_memory
        self._dtype = dtype
        self._scope: _core.Init | None = None
        if enabled and module is not None:
            self._partition(_parameters(module))

    def __enter__(self) -> Self:
        if self.enabled:
            self._open()
            _open_inits().append(self)
        return self

    def _init_ranks(self) -> _core.InitRanks:
        if self._ranks is None:
            self._ranks = _core.InitRanks(_ranks_to_partition_over(self._group))
        return self._ranks

    def _partition(self, parameters: list[tuple[str, torch.Tensor]]) -> None:
        _core.partition_module(self._init_ranks(), parameters, self._config, self._remote_device, self._pin_memory, self._dtype)

    def _open(self) -> None:
        self._scope = _core.Init(self._init_ranks(), self._config, self._remote_device, self._pin_memory, self._dtype)
        self._frozen = FrozenNewborns()

    def _close(self) -> None:
        scope, self._scope = self._scope, None
        frozen = self._frozen.take()
        assert scope is not None
        scope.close()
        if frozen:
            self._partition(frozen)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self in _open_inits():
            _open_inits().remove(self)
        if self._scope is None:
            return
        if kind is None:
            self._close()
        else:
            self._frozen.take()
            self._scope.forget()
            self._scope = None


def _open_inits() -> list[Init]:
    """Returns this thread's open zero.Inits, the outermost first."""
    if not hasattr(_of_thread, "inits"):
        _of_thread.inits = []
    opened: list[Init] = _of_thread.inits
    return opened


@contextlib.contextmanager
def init_paused() -> Iterator[None]:
    """Closes this thread's zero.Inits during the scope, and reopens them at its end. Meanwhile an engine can take over what they built."""
    paused = [init for init in _open_inits() if init._scope is not None]
    for init in reversed(paused):
        init._close()
    yield
    for init in paused:
        init._open()


def _ranks_to_partition_over(group: ProcessGroup | None) -> list[int] | None:
    """Joins the job. Returns the global ranks of the group. Returns None without a group, or if the group has all ranks."""
    _world.ensure_world()
    ranks = dist.get_world_size()
    wrong = _contradicting_single_rank_pg_error(ranks, group)
    if wrong is not None:
        raise UsageError(wrong)
    if group is None or dist.get_world_size(group=group) == ranks:
        return None
    return sorted(dist.get_process_group_ranks(group))


def _parameters(module: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    return [(name, param) for name, param in module.named_parameters()]


def _init_config(source: Any) -> dict[str, Any]:
    """Completes a config for building a model, before its batch size is known."""
    config = _config.for_core(_config.read_config(source))
    if not {"train_batch_size", "train_micro_batch_size_per_gpu"} & set(config):
        config["train_micro_batch_size_per_gpu"] = 1
    return {
        key: value
        for key, value in config.items()
        if key in ("zero_optimization", "fp16", "bf16", "bfloat16", "aio", "train_batch_size", "train_micro_batch_size_per_gpu")
    }


def register_external_parameter(module: torch.nn.Module, parameter: torch.Tensor) -> None:
    """Announces that a module uses another module's parameter. It is not needed: an operator gathers what it uses."""
    if not isinstance(parameter, torch.nn.Parameter):
        raise RuntimeError("Parameter is not a torch.nn.Parameter")
    note_external_parameter(module, parameter)


def note_external_parameter(module: torch.nn.Module, parameter: torch.Tensor) -> None:
    """Records that the module uses another module's parameter."""
    external_parameters(module)[id(parameter)] = parameter
    used_elsewhere[parameter] = True


def unregister_external_parameter(module: torch.nn.Module, parameter: torch.Tensor) -> None:
    """Withdraws an announcement."""
    if not isinstance(parameter, torch.nn.Parameter):
        raise RuntimeError("Parameter is not a torch.nn.Parameter")
    if external_parameters(module).pop(id(parameter), None) is None:
        raise RuntimeError("Parameter is not a registered external parameter of module.")


def external_parameters(module: Any) -> dict[int, torch.Tensor]:
    """Returns {id: parameter} of parameters that the module uses but does not own."""
    if not hasattr(module, "_external_params"):
        module._external_params = {}
    params: dict[int, torch.Tensor] = module._external_params
    return params


def get_allgather_dtype(param: torch.Tensor, param_ds_tensor: torch.Tensor) -> torch.dtype:
    """Returns the dtype in which a parameter's shards are gathered: their own, or autocast's."""
    from deepspeed.runtime.torch_autocast import get_comm_dtype, has_comm_dtype

    return get_comm_dtype(param) if has_comm_dtype(param) else param_ds_tensor.dtype


def zero_wrapper_for_fp_tensor_constructor(fn: T, target_fp_dtype: object) -> T:
    """Returns the function itself: zero.Init casts at its end, not in constructors."""
    return fn


_orig_torch_tensor = torch.tensor
_orig_torch_empty = torch.empty
_orig_torch_zeros = torch.zeros
_orig_torch_ones = torch.ones
_orig_torch_full = torch.full
_orig_torch_arange = torch.arange
_orig_torch_eye = torch.eye
_orig_torch_randn = torch.randn


def get_accelerator() -> DeepSpeedAccelerator:
    from deepspeed.accelerator import get_accelerator as get

    return get()


def _contradicting_single_rank_pg_error(
    dp_world_size: int, explicit_process_group: object, env: Mapping[str, str] | None = None
) -> str | None:
    """Returns an error text if the default group has one of several ranks, otherwise None.

    Each rank would hold the whole model. A group of one that the caller passes itself is intended.
    """
    if dp_world_size != 1 or explicit_process_group is not None:
        return None
    try:
        launched = int((os.environ if env is None else env).get("WORLD_SIZE") or 1)
    except ValueError:
        return None
    if launched <= 1:
        return None
    return (
        f"zero.Init: the default process group has 1 rank, but the launcher has set WORLD_SIZE={launched}, so each rank would hold "
        "the whole model; call deepspeed.init_distributed() before anything else makes a group, or pass data_parallel_group"
    )


def __getattr__(name: str) -> Any:
    if name in ("zero3_linear_wrap", "LinearFunctionForZeroStage3", "LinearModuleForZeroStage3"):
        from deepspeed.runtime.zero import linear

        return getattr(linear, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
