"""Defines the sections tensorboard, csv_monitor, wandb and comet as pydantic models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from deepspeed.runtime.config_model import DeepSpeedConfigModel

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_SECTIONS = ("tensorboard", "comet", "wandb", "csv_monitor")


class TensorBoardConfig(DeepSpeedConfigModel):
    """Holds the keys of tensorboard. Files are in `<output_path>/<job_name>`."""

    enabled: bool = False
    output_path: str = ""
    job_name: str = "DeepSpeedJobName"


class CSVConfig(DeepSpeedConfigModel):
    """Holds the keys of csv_monitor. Files are in `<output_path>/<job_name>`."""

    enabled: bool = False
    output_path: str = ""
    job_name: str = "DeepSpeedJobName"


class WandbConfig(DeepSpeedConfigModel):
    """Holds the keys of wandb; `team` is the entity of Weights & Biases."""

    enabled: bool = False
    group: str | None = None
    team: str | None = None
    project: str = "deepspeed"


class CometConfig(DeepSpeedConfigModel):
    """Holds the keys of comet; samples_log_interval: samples between two values of a name."""

    enabled: bool = False
    samples_log_interval: int = 100
    project: str | None = None
    workspace: str | None = None
    api_key: str | None = None
    experiment_name: str | None = None
    experiment_key: str | None = None
    online: bool | None = None
    mode: str | None = None


class DeepSpeedMonitorConfig(DeepSpeedConfigModel):
    """Holds the four sections."""

    tensorboard: TensorBoardConfig = Field(default_factory=TensorBoardConfig)
    comet: CometConfig = Field(default_factory=CometConfig)
    wandb: WandbConfig = Field(default_factory=WandbConfig)
    csv_monitor: CSVConfig = Field(default_factory=CSVConfig)

    @property
    def enabled(self) -> bool:
        return any(getattr(self, section).enabled for section in _SECTIONS)


def get_monitor_config(param_dict: Mapping[str, Any]) -> DeepSpeedMonitorConfig:
    """Returns the sections of a config as one model."""
    sections: dict[str, Any] = {section: param_dict.get(section) or {} for section in _SECTIONS}
    return DeepSpeedMonitorConfig(**sections)
