"""Defines DeepSpeedConfig: a config that the core has read, checked and resolved."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import torch.distributed as dist

from deepspeed import _config, _core
from deepspeed._errors import ConfigError
from deepspeed.elasticity.config import elasticity_errors
from deepspeed.runtime.optimizer_names import *  # noqa: F403  -- scripts read them here

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from deepspeed._types import Mpu
    from deepspeed.monitor.config import DeepSpeedMonitorConfig
    from deepspeed.runtime.precision_config import DeepSpeedBF16Config, DeepSpeedFP16Config
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

DeepSpeedConfigError = ConfigError  # DeepSpeed's name

_BATCH = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")


class DeepSpeedConfig:
    """Shows the config's keys as attributes, with defaults. Raises ConfigError, naming the key.

    It also reads sections of features that do not exist here, which initialize() refuses.
    """

    def __init__(self, config: Any, mpu: Mpu | None = None, mesh_device: object = None) -> None:
        given = _config.read_config(config)
        with elasticity_errors():
            self._fill(given, _core.read_config(_config.for_core(given), _world_size()))

    @classmethod
    def of_resolved(cls, given: Mapping[str, Any], resolved: dict[str, Any]) -> DeepSpeedConfig:
        made = cls.__new__(cls)
        made._fill(given, resolved)
        return made

    def _fill(self, given: Mapping[str, Any], resolved: dict[str, Any]) -> None:
        self._param_dict = given
        self.world_size = _world_size()
        for key, value in resolved.items():
            setattr(self, key, value)
        self.log_level = given.get("log_level")

    def __getattr__(self, name: str) -> Any:
        """Returns further names of DeepSpeed: a section's model, or a key within a section."""
        if name in _SECTIONS and not name.startswith("__"):
            return _SECTIONS[name](self._param_dict)
        if name in _PATHS:
            found: Any = self.__dict__
            for key in _PATHS[name]:
                found = (found or {}).get(key)
            return found
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def zero_enabled(self) -> bool:
        return bool(self.zero_optimization_stage > 0)

    def _configure_train_batch_size(self) -> None:
        """Computes the batch sizes that are None from the others. Raises ConfigError if they contradict."""
        given = {key: getattr(self, key) for key in _BATCH if getattr(self, key) is not None}
        resolved = _core.load_config(given, self.world_size)
        for key in _BATCH:
            setattr(self, key, resolved[key])

    def print_user_config(self) -> None:
        from deepspeed.utils.logging import print_json_dist

        print_json_dist(self._param_dict)


def _zero_config(given: Mapping[str, Any]) -> DeepSpeedZeroConfig:
    from deepspeed.runtime.zero.config import get_zero_config

    return get_zero_config(given)


def _bfloat16_config(given: Mapping[str, Any]) -> DeepSpeedBF16Config:
    from deepspeed.runtime.precision_config import get_bfloat16_config

    return get_bfloat16_config(given)


def _float16_config(given: Mapping[str, Any]) -> DeepSpeedFP16Config:
    from deepspeed.runtime.precision_config import get_float16_config

    return get_float16_config(given)


def _monitor_config(given: Mapping[str, Any]) -> DeepSpeedMonitorConfig:
    from deepspeed.monitor.config import get_monitor_config

    return get_monitor_config(given)


_SECTIONS = {
    "zero_config": _zero_config,
    "bfloat16_config": _bfloat16_config,
    "float16_config": _float16_config,
    "monitor_config": _monitor_config,
}

# Paths in the resolved config for names of DeepSpeed's.
_PATHS = {
    "zero_optimization_stage": ("zero_optimization", "stage"),
    "optimizer_name": ("optimizer", "type"),
    "optimizer_params": ("optimizer", "params"),
    "scheduler_name": ("scheduler", "type"),
    "scheduler_params": ("scheduler", "params"),
    "sparse_gradients_enabled": ("sparse_gradients",),
    "amp_enabled": ("amp", "enabled"),
    "eigenvalue_enabled": ("eigenvalue", "enabled"),
    "eigenvalue_verbose": ("eigenvalue", "verbose"),
    "pld_enabled": ("progressive_layer_drop", "enabled"),
    "grad_accum_dtype": ("data_types", "grad_accum_dtype"),
    "param_dtype": ("data_types", "param_dtype"),
    "buffer_dtype": ("data_types", "buffer_dtype"),
    "load_universal_checkpoint": ("checkpoint", "load_universal"),
    "use_node_local_storage": ("checkpoint", "use_node_local_storage"),
    "aio_config": ("aio",),
    "activation_checkpointing_config": ("activation_checkpointing",),
    "comms_config": ("comms_logger",),
    "flops_profiler_config": ("flops_profiler",),
    "checkpoint_config": ("checkpoint",),
    "compile_config": ("compile",),
    "timers_config": ("timers",),
    "nebula_config": ("nebula",),
    "tensor_parallel_config": ("tensor_parallel",),
    "expert_parallel_config": ("expert_parallel",),
}


@functools.lru_cache(maxsize=1)
def _defaults() -> dict[str, Any]:
    return _core.load_config({"train_batch_size": 1}, 1)


def default_of(key: str) -> Any:
    """Returns a top-level key's default; None if it has none."""
    return _defaults().get(key)


def _world_size() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def __getattr__(name: str) -> Any:
    """Makes get_<key>(param_dict), which returns a top-level key's value or its default."""
    key = name.removeprefix("get_")
    if key == name or key not in _core.config_keys():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def get(param_dict: Mapping[str, Any]) -> Any:
        return param_dict.get(key, default_of(key))

    get.__name__ = get.__qualname__ = name
    return get
