"""Defines the base class of all monitors."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING

import deepspeed.comm as dist

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from deepspeed._types import Event


class Monitor(abc.ABC):
    """Writes events: tuples (name, value, step). The step counts the samples trained so far."""

    @abc.abstractmethod
    def __init__(self, monitor_config: Any) -> None:
        self.monitor_config = monitor_config
        self.enabled = monitor_config.enabled
        self._writes = self.enabled and dist.get_rank() == 0

    @abc.abstractmethod
    def write_events(self, event_list: Sequence[Event]) -> None:
        """Writes the events on rank 0."""
