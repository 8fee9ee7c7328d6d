"""Sends scalars to TensorBoard by torch's writer."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from deepspeed.monitor.base import Monitor
from deepspeed.monitor.utils import check_tb_availability

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from torch.utils.tensorboard import SummaryWriter

    from deepspeed._types import Event


class TensorBoardMonitor(Monitor):
    """Writes files into `<output_path>/<job_name>`. Raises ImportError without the package tensorboard."""

    def __init__(self, tensorboard_config: Any) -> None:
        super().__init__(tensorboard_config)
        check_tb_availability()
        self.output_path = tensorboard_config.output_path
        self.job_name = tensorboard_config.job_name
        self.summary_writer: SummaryWriter | None = None
        if self._writes:
            self.get_summary_writer()

    def get_summary_writer(self) -> SummaryWriter | None:
        """Returns torch's SummaryWriter on rank 0, None elsewhere."""
        if self._writes and self.summary_writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self.summary_writer = SummaryWriter(log_dir=os.path.join(self.output_path, self.job_name))
        return self.summary_writer

    def write_events(self, event_list: Sequence[Event], flush: bool = True) -> None:
        if self.summary_writer is None:
            return
        for event in event_list:
            self.summary_writer.add_scalar(*event)
        if flush:
            self.flush()

    def flush(self) -> None:
        if self.summary_writer is not None:
            self.summary_writer.flush()
