"""Sends scalars to Comet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepspeed.monitor.base import Monitor
from deepspeed.monitor.utils import check_comet_availability

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from deepspeed._types import Event


class CometMonitor(Monitor):
    """Starts an experiment. Raises ImportError without the package comet_ml.

    The first value of a name is sent, then one after at least samples_log_interval further samples.
    """

    def __init__(self, comet_config: Any) -> None:
        super().__init__(comet_config)
        check_comet_availability()
        self.samples_log_interval = comet_config.samples_log_interval
        self.experiment: Any = None
        self._logged: dict[str, int] = {}  # samples at each name's last value
        if not self._writes:
            return
        import comet_ml

        self.experiment = comet_ml.start(
            api_key=comet_config.api_key,
            project=comet_config.project,
            workspace=comet_config.workspace,
            experiment_key=comet_config.experiment_key,
            mode=comet_config.mode,
            online=comet_config.online,
        )
        if comet_config.experiment_name is not None:
            self.experiment.set_name(comet_config.experiment_name)

    def write_events(self, event_list: Sequence[Event]) -> None:
        if not self._writes:
            return
        for name, value, samples in event_list:
            if name in self._logged and samples - self._logged[name] < self.samples_log_interval:
                continue
            self._logged[name] = samples
            self.experiment.log_metric(name, value, step=samples)
