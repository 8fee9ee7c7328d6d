"""Writes to all monitors of an engine, on rank 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepspeed.monitor.base import Monitor as Monitor
from deepspeed.monitor.comet import CometMonitor
from deepspeed.monitor.csv_monitor import csvMonitor
from deepspeed.monitor.tensorboard import TensorBoardMonitor
from deepspeed.monitor.wandb import WandbMonitor

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from deepspeed._types import Event


class MonitorMaster(Monitor):
    """Makes the monitors that a config turns on, and passes events to all of them.

    monitor_config: has `tensorboard`, `wandb`, `csv_monitor` and `comet`, and `enabled`, which tells whether one of them is on. Raises
    ImportError on all ranks if a package is missing.
    """

    def __init__(self, monitor_config: Any) -> None:
        super().__init__(monitor_config)
        self.tb_monitor = self.wandb_monitor = self.csv_monitor = self.comet_monitor = None
        if monitor_config.tensorboard.enabled:
            self.tb_monitor = TensorBoardMonitor(monitor_config.tensorboard)
        if monitor_config.wandb.enabled:
            self.wandb_monitor = WandbMonitor(monitor_config.wandb)
        if monitor_config.csv_monitor.enabled:
            self.csv_monitor = csvMonitor(monitor_config.csv_monitor)
        if monitor_config.comet.enabled:
            self.comet_monitor = CometMonitor(monitor_config.comet)

    def write_events(self, event_list: Sequence[Event]) -> None:
        if not self._writes:
            return
        for monitor in (self.tb_monitor, self.wandb_monitor, self.csv_monitor, self.comet_monitor):
            if monitor is not None:
                monitor.write_events(event_list)
