"""Defines sections offload_param and offload_optimizer of zero_optimization as pydantic models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field, model_validator

from deepspeed.runtime.config_model import DeepSpeedConfigModel
from deepspeed.runtime.config_utils import pp_int
from deepspeed.runtime.zero.offload_enums import OffloadDeviceEnum as OffloadDeviceEnum, OffloadStateTypeEnum as OffloadStateTypeEnum

if TYPE_CHECKING:
    from typing_extensions import Self


class DeepSpeedZeroOffloadParamConfig(DeepSpeedConfigModel):
    """Says where stage 3 keeps the shards of parameters."""

    device: OffloadDeviceEnum = "none"  # type: ignore[assignment]  # validated, as all defaults are
    nvme_path: Path | None = None
    buffer_count: int = Field(5, ge=0)
    buffer_size: int = Field(pp_int(1e8), ge=0)
    max_in_cpu: int = Field(pp_int(1e9), ge=0)
    pin_memory: bool = True


class DeepSpeedZeroOffloadOptimizerConfig(DeepSpeedConfigModel):
    """Says where the optimizer's states are, and how they are moved."""

    device: OffloadDeviceEnum = "none"  # type: ignore[assignment]  # validated, as all defaults are
    nvme_path: Path | None = None
    buffer_count: int = Field(4, ge=0)
    pin_memory: bool = True
    pipeline_read: bool = False
    pipeline_write: bool = False
    fast_init: bool = False
    ratio: float = Field(1.0, ge=0.0, le=1.0)
    super_offload: bool = False
    cpuadam_cores_perc: float = Field(0.8, ge=0.0, le=1.0)

    @model_validator(mode="after")
    def set_pipeline(self) -> Self:
        """Sets `pipeline`, which is no key: whether reads or writes overlap the step."""
        self.__dict__["pipeline"] = self.pipeline_read or self.pipeline_write
        return self
