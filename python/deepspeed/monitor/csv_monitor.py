"""Writes scalars to CSV files, one for each name."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from deepspeed import _core
from deepspeed._errors import IoError
from deepspeed.monitor.base import Monitor
from deepspeed.utils.logging import logger

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from deepspeed._types import Event


class csvMonitor(Monitor):
    """Appends to CSV files with the header "step,lr", for example.

    The file of "Train/Samples/lr" is `<output_path>/<job_name>/Train_Samples_lr.csv`.
    """

    def __init__(self, csv_config: Any) -> None:
        super().__init__(csv_config)
        self.output_path = csv_config.output_path
        self.job_name = csv_config.job_name
        self.log_dir: str | None = None
        self._files: _core.CsvMonitor | None = None
        if self._writes:
            self.log_dir = os.path.join(self.output_path, self.job_name)
            self._files = _core.CsvMonitor(self.log_dir)
        self._has_failed = False

    def write_events(self, event_list: Sequence[Event]) -> None:
        """Appends the events. If the disk fails, it logs that once, and training goes on."""
        if self._files is None:
            return
        try:
            self._files.write_events([(name, float(value), int(step)) for name, value, step in event_list])
        except IoError as error:
            if not self._has_failed:
                logger.error(f"scalars are lost, the training goes on: {error}")
            self._has_failed = True
