"""Chooses the class of initialize()'s optimizer by stage and precision, as DeepSpeed does."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from deepspeed._config import offload_device
from deepspeed.runtime.base_optimizer import DeepSpeedOptimizer
from deepspeed.runtime.bf16_optimizer import BF16_Optimizer
from deepspeed.runtime.fp16.fused_optimizer import FP16_Optimizer
from deepspeed.runtime.fp16.unfused_optimizer import FP16_UnfusedOptimizer
from deepspeed.runtime.zero.mics import MiCS_Optimizer
from deepspeed.runtime.zero.stage3 import DeepSpeedZeroOptimizer_Stage3
from deepspeed.runtime.zero.stage_1_and_2 import DeepSpeedZeroOptimizer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def optimizer_class(config: Mapping[str, Any], basic: type | None) -> type[DeepSpeedOptimizer]:
    """Returns the class for a config. basic: the class of the optimizer below; None if there is none."""
    zero = config.get("zero_optimization") or {}
    stage = zero.get("stage", 0)
    if stage == 3:
        return MiCS_Optimizer if zero.get("mics_shard_size", -1) > 0 else DeepSpeedZeroOptimizer_Stage3
    if stage == 1 and _is_bf16(config) and _sums_in_fp32(config) and offload_device(config) == "none":
        return BF16_Optimizer
    if stage > 0:
        return DeepSpeedZeroOptimizer
    if _is_bf16(config) or (config.get("fp16") or {}).get("enabled"):
        return FP16_Optimizer if basic is not None and basic.__name__ == "FusedAdam" else FP16_UnfusedOptimizer
    return DeepSpeedOptimizer if basic is None else _of_kind(basic)


def _is_bf16(config: Mapping[str, Any]) -> bool:
    return bool((config.get("bf16") or config.get("bfloat16") or {}).get("enabled"))


def _sums_in_fp32(config: Mapping[str, Any]) -> bool:
    return (config.get("data_types") or {}).get("grad_accum_dtype") == "fp32"


@functools.cache
def _of_kind(kind: type) -> type[DeepSpeedOptimizer]:
    """Makes a class with the name of `kind`. DeepSpeed returns that without ZeRO and 16 bits."""
    members = {"__module__": kind.__module__, "__doc__": DeepSpeedOptimizer.__doc__, "__getattr__": _of_basic}
    return type(kind.__name__, (DeepSpeedOptimizer, kind), members)


def _of_basic(facade: DeepSpeedOptimizer, name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    return getattr(facade.optimizer, name)
