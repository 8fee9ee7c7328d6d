"""Scalars go to CSV files, one a name."""

import os

from deepspeed import _core
from deepspeed._errors import IoError
from deepspeed.monitor.monitor import Monitor
from deepspeed.utils.logging import logger


class csvMonitor(Monitor):
    """Appends to `<output_path>/<job_name>/Train_Samples_lr.csv` what is called "Train/Samples/lr", below the line "step,lr"."""

    def __init__(self, csv_config):
        super().__init__(csv_config)
        self.output_path = csv_config.output_path
        self.job_name = csv_config.job_name
        self.log_dir = os.path.join(self.output_path, self.job_name) if self._writes else None
        self._has_failed = False
        self._files = _core.CsvMonitor(self.log_dir) if self._writes else None

    def write_events(self, event_list):
        """Appends them. A disk that fails is logged once, and the training goes on."""
        if not self._writes:
            return
        try:
            self._files.write_events([(name, float(value), int(step)) for name, value, step in event_list])
        except IoError as error:
            if not self._has_failed:
                logger.error(f"scalars are lost, the training goes on: {error}")
            self._has_failed = True
