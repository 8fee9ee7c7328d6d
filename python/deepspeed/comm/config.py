"""Reads the section comms_logger of a config."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepspeed.runtime.config_utils import DeepSpeedConfigModel

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class CommsLoggerConfig(DeepSpeedConfigModel):
    """Says which collectives of a script are logged."""

    enabled: bool = False
    prof_all: bool = True
    prof_ops: list[str] = []
    verbose: bool = False
    debug: bool = False


class DeepSpeedCommsConfig:
    """Reads the section of a config. Without it nothing is logged."""

    def __init__(self, ds_config: Mapping[str, Any]) -> None:
        self.comms_logger_enabled = "comms_logger" in ds_config
        if self.comms_logger_enabled:
            self.comms_logger = CommsLoggerConfig(**ds_config["comms_logger"])
