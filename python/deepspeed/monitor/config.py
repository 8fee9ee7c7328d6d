"""Sections tensorboard, csv_monitor, wandb and comet, as pydantic models."""

from typing import Optional

from pydantic import Field

from deepspeed.runtime.config_model import DeepSpeedConfigModel

_SECTIONS = ("tensorboard", "comet", "wandb", "csv_monitor")


class TensorBoardConfig(DeepSpeedConfigModel):
    """Has the keys of tensorboard; files lie in `<output_path>/<job_name>`."""

    enabled: bool = False
    output_path: str = ""
    job_name: str = "DeepSpeedJobName"


class CSVConfig(DeepSpeedConfigModel):
    """Has the keys of csv_monitor; files lie in `<output_path>/<job_name>`."""

    enabled: bool = False
    output_path: str = ""
    job_name: str = "DeepSpeedJobName"


class WandbConfig(DeepSpeedConfigModel):
    """Has the keys of wandb; `team` is the entity of Weights & Biases."""

    enabled: bool = False
    group: Optional[str] = None
    team: Optional[str] = None
    project: str = "deepspeed"


class CometConfig(DeepSpeedConfigModel):
    """Has the keys of comet; samples_log_interval: samples between two values of a name."""

    enabled: bool = False
    samples_log_interval: int = 100
    project: Optional[str] = None
    workspace: Optional[str] = None
    api_key: Optional[str] = None
    experiment_name: Optional[str] = None
    experiment_key: Optional[str] = None
    online: Optional[bool] = None
    mode: Optional[str] = None


class DeepSpeedMonitorConfig(DeepSpeedConfigModel):
    """Has the four sections."""

    tensorboard: TensorBoardConfig = Field(default_factory=TensorBoardConfig)
    comet: CometConfig = Field(default_factory=CometConfig)
    wandb: WandbConfig = Field(default_factory=WandbConfig)
    csv_monitor: CSVConfig = Field(default_factory=CSVConfig)

    @property
    def enabled(self):
        return any(getattr(self, section).enabled for section in _SECTIONS)


def get_monitor_config(param_dict):
    """Returns the sections of a config as one model."""
    return DeepSpeedMonitorConfig(**{section: param_dict.get(section) or {} for section in _SECTIONS})
