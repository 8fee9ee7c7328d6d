"""All monitors of an engine. Rank 0 writes."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING

import deepspeed.comm as dist

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from deepspeed._types import Event


class Monitor(abc.ABC):
    """Takes events: tuples (name, value, step), the step being the samples trained so far."""

    @abc.abstractmethod
    def __init__(self, monitor_config: Any) -> None:
        self.monitor_config = monitor_config
        self.enabled = monitor_config.enabled
        self._writes = self.enabled and dist.get_rank() == 0

    @abc.abstractmethod
    def write_events(self, event_list: Sequence[Event]) -> None:
        """Writes them, on rank 0."""


class MonitorMaster(Monitor):
    """Makes the monitors that a config turns on, and hands events to all of them.

    monitor_config: has `tensorboard`, `wandb`, `csv_monitor` and `comet`, and `enabled`, whether one of them is. Raises ImportError, on
    all ranks, where the package of one is missing.
    """

    def __init__(self, monitor_config: Any) -> None:
        super().__init__(monitor_config)
        self.tb_monitor = self.wandb_monitor = self.csv_monitor = self.comet_monitor = None
        if monitor_config.tensorboard.enabled:
            from deepspeed.monitor.tensorboard import TensorBoardMonitor

            self.tb_monitor = TensorBoardMonitor(monitor_config.tensorboard)
        if monitor_config.wandb.enabled:
            from deepspeed.monitor.wandb import WandbMonitor

            self.wandb_monitor = WandbMonitor(monitor_config.wandb)
        if monitor_config.csv_monitor.enabled:
            from deepspeed.monitor.csv_monitor import csvMonitor

            self.csv_monitor = csvMonitor(monitor_config.csv_monitor)
        if monitor_config.comet.enabled:
            from deepspeed.monitor.comet import CometMonitor

            self.comet_monitor = CometMonitor(monitor_config.comet)

    def write_events(self, event_list: Sequence[Event]) -> None:
        if not self._writes:
            return
        for monitor in (self.tb_monitor, self.wandb_monitor, self.csv_monitor, self.comet_monitor):
            if monitor is not None:
                monitor.write_events(event_list)
