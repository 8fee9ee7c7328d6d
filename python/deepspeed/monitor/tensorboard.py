"""Scalars go to TensorBoard, by torch's writer."""

import os

from deepspeed.monitor.monitor import Monitor
from deepspeed.monitor.utils import check_tb_availability


class TensorBoardMonitor(Monitor):
    """Writes files into `<output_path>/<job_name>`. Raises ImportError without the package tensorboard."""

    def __init__(self, tensorboard_config):
        super().__init__(tensorboard_config)
        check_tb_availability()
        self.output_path = tensorboard_config.output_path
        self.job_name = tensorboard_config.job_name
        self.summary_writer = None
        if self._writes:
            self.get_summary_writer()

    def get_summary_writer(self):
        """Returns torch's SummaryWriter on rank 0, None elsewhere."""
        if self._writes and self.summary_writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self.summary_writer = SummaryWriter(log_dir=os.path.join(self.output_path, self.job_name))
        return self.summary_writer

    def write_events(self, event_list, flush=True):
        if self.summary_writer is None:
            return
        for event in event_list:
            self.summary_writer.add_scalar(*event)
        if flush:
            self.flush()

    def flush(self):
        if self.summary_writer is not None:
            self.summary_writer.flush()
