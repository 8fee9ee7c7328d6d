"""Sends scalars to Weights & Biases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepspeed.monitor.base import Monitor
from deepspeed.monitor.utils import check_wandb_availability

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from deepspeed._types import Event


class WandbMonitor(Monitor):
    """Starts a run of the project. Raises ImportError without the package wandb."""

    def __init__(self, wandb_config: Any) -> None:
        super().__init__(wandb_config)
        check_wandb_availability()
        self.group = wandb_config.group
        self.team = wandb_config.team
        self.project = wandb_config.project
        if self._writes:
            import wandb

            wandb.init(project=self.project, group=self.group, entity=self.team)

    def log(self, data: Mapping[str, Any], step: int | None = None, commit: bool | None = None) -> Any:
        """Calls wandb.log() on rank 0."""
        if self._writes:
            import wandb

            return wandb.log(data, step=step, commit=commit)
        return None

    def write_events(self, event_list: Sequence[Event]) -> None:
        for name, value, step in event_list:
            self.log({name: value}, step=step)
