"""Defines the sections fp16 and bf16 as pydantic models."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pydantic import field_validator, model_validator

from deepspeed.runtime.config_model import DeepSpeedConfigModel
from deepspeed.runtime.fp16.loss_scaler import (
    CONSECUTIVE_HYSTERESIS,
    DELAYED_SHIFT,
    INITIAL_LOSS_SCALE,
    MIN_LOSS_SCALE,
    SCALE_WINDOW,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from pydantic import ValidationInfo
    from typing_extensions import Self

BFLOAT16 = "bf16"
BFLOAT16_OLD = "bfloat16"
FP16 = "fp16"


class DeepSpeedBF16Config(DeepSpeedConfigModel):
    """Holds the keys of bf16."""

    enabled: bool = False
    immediate_grad_update: bool = False
    check_grad_overflow: bool = True
    bf16_master_weights_and_grads: bool = False
    bf16_optimizer_states: bool = False
    split_master_weights: bool = False  # a key of this engine, not of DeepSpeed


class DeepSpeedFP16Config(DeepSpeedConfigModel):
    """Holds the keys of fp16. A loss scale of 0 means a dynamic one."""

    enabled: bool = False
    auto_cast: bool = False
    loss_scale: float = 0
    initial_scale_power: int = 16
    loss_scale_window: int = 1000
    hysteresis: int = 2
    consecutive_hysteresis: bool = False
    min_loss_scale: int = 1
    fp16_master_weights_and_grads: bool = False

    @field_validator("loss_scale", mode="before")
    @classmethod
    def _check_scale(cls, value: object) -> float:
        value = _number("loss_scale", "a number", value, float)
        if value < 0:
            raise ValueError("fp16.loss_scale must be >= 0 (0 enables dynamic loss scaling)")
        return value

    @field_validator("loss_scale_window", "min_loss_scale", mode="before")
    @classmethod
    def _check_whole(cls, value: object, info: ValidationInfo) -> object:
        _number(str(info.field_name), "an integer", value, int)
        return value

    @model_validator(mode="after")
    def _check_dynamic(self) -> Self:
        for key in ("loss_scale_window", "min_loss_scale"):
            if self.enabled and self.loss_scale == 0 and getattr(self, key) <= 0:
                raise ValueError(f"fp16.{key} must be > 0 when dynamic loss scaling is enabled (loss_scale=0)")
        return self

    def initial_dynamic_scale(self) -> int:
        scale: int = 2**self.initial_scale_power
        return scale

    def dynamic_loss_scale_args(self) -> dict[str, Any]:
        return {
            INITIAL_LOSS_SCALE: self.initial_dynamic_scale(),
            SCALE_WINDOW: self.loss_scale_window,
            DELAYED_SHIFT: self.hysteresis,
            CONSECUTIVE_HYSTERESIS: self.consecutive_hysteresis,
            MIN_LOSS_SCALE: self.min_loss_scale,
        }


def _number(key: str, what: str, value: object, convert: Callable[[Any], float]) -> float:
    if isinstance(value, bool):
        raise ValueError(f"fp16.{key} must be {what}, not bool")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"fp16.{key} must be a finite number (not inf/-inf/nan)")
    try:
        number = convert(value)
    except (TypeError, ValueError):
        raise ValueError(f"fp16.{key} must be {what}") from None
    if not math.isfinite(number):
        raise ValueError(f"fp16.{key} must be a finite number (not inf/-inf/nan)")
    return number


def get_bfloat16_config(param_dict: Mapping[str, Any]) -> DeepSpeedBF16Config:
    """Returns the section bf16, or bfloat16, its older name."""
    return DeepSpeedBF16Config(**(param_dict.get(BFLOAT16) or param_dict.get(BFLOAT16_OLD) or {}))


def get_float16_config(param_dict: Mapping[str, Any]) -> DeepSpeedFP16Config:
    """Returns the section fp16."""
    return DeepSpeedFP16Config(**param_dict.get(FP16, {}))
