"""Section zenflow of zero_optimization, as a pydantic model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field, model_validator

from deepspeed.runtime.config_model import DeepSpeedConfigModel

if TYPE_CHECKING:
    from typing_extensions import Self


class ZenFlowConfig(DeepSpeedConfigModel):
    """Holds the keys that say which gradients are used at once, and which later."""

    topk_ratio: float = Field(0.1, gt=0.0, lt=1.0)
    select_strategy: str = "auto"
    select_interval: str | int = "auto"
    update_interval: str | int = "auto"
    overlap_step: bool = False
    offload: bool = False
    auto_ratio: float = Field(0.99, ge=0.0, le=1.0)
    full_warm_up_rounds: int = 0
    pt_reserved_cores_perc: float = Field(0.5, ge=0.0, le=1.0)
    steps_per_epoch: int | None = Field(None, exclude=True)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.select_strategy not in ("auto", "step", "epoch"):
            raise ValueError('select_strategy must be one of "auto", "step", or "epoch"')
        for key in ("select_interval", "update_interval"):
            value = getattr(self, key)
            if isinstance(value, str) and value != "auto":
                raise ValueError(f'If {key} is a string, it must be "auto"')
        if isinstance(self.update_interval, int) and self.update_interval < 1:
            raise ValueError("If update_interval is a number, it must be at least 1")
        return self
