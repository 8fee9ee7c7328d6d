"""Implements MiCS: blocks of `mics_shard_size` consecutive ranks hold the model once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepspeed import _config
from deepspeed._errors import ConfigError, not_supported_class
from deepspeed.runtime.zero.partition_parameters import Init
from deepspeed.runtime.zero.stage3 import DeepSpeedZeroOptimizer_Stage3

if TYPE_CHECKING:
    from typing import Any

    import torch
    from torch.distributed import ProcessGroup

    from deepspeed._types import Mpu

MiCS_Offload = not_supported_class(
    "deepspeed.runtime.zero.mics.MiCS_Offload",
    "the engine gathers parameters by itself: call initialize() with mics_shard_size in the config",
)


def _shard_size(source: Any) -> int:
    """Returns mics_shard_size from the config; -1 without it."""
    zero = _config.read_config(source).get("zero_optimization") or {}
    return zero.get("mics_shard_size", -1) if isinstance(zero, dict) else -1


class MiCS_Init(Init):
    """Partitions as zero.Init does, but requires mics_shard_size in the config. zero.Init does the same with such a config."""

    def __init__(
        self,
        module: torch.nn.Module | None = None,
        data_parallel_group: ProcessGroup | None = None,
        sequence_data_parallel_group: ProcessGroup | None = None,
        mem_efficient_linear: bool = True,
        remote_device: str | None = None,
        pin_memory: bool = False,
        config_dict_or_path: Any = None,
        config: Any = None,
        enabled: bool = True,
        dtype: torch.dtype | None = None,
        mpu: Mpu | None = None,
    ) -> None:
        source = config_dict_or_path if config_dict_or_path is not None else config
        if enabled and source is None:
            raise ConfigError("zero.MiCS_Init needs config_dict_or_path, whose zero_optimization.mics_shard_size it follows; pass it")
        if enabled and _shard_size(source) < 1:
            raise ConfigError(
                f"zero_optimization.mics_shard_size: got {_shard_size(source)}, expected the ranks that hold the model once, where it is "
                "built under zero.MiCS_Init; set it, or use zero.Init"
            )
        super().__init__(
            module=module,
            data_parallel_group=data_parallel_group,
            sequence_data_parallel_group=sequence_data_parallel_group,
            mem_efficient_linear=mem_efficient_linear,
            remote_device=remote_device,
            pin_memory=pin_memory,
            config_dict_or_path=source,
            enabled=enabled,
            dtype=dtype,
            mpu=mpu,
        )


class MiCS_Optimizer(DeepSpeedZeroOptimizer_Stage3):
    """Shows the optimizer of ZeRO stage 3 over blocks of ranks."""
