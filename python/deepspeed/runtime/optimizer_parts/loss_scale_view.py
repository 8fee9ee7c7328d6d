"""Shows scripts the loss scale, which the core applies. They read `optimizer.loss_scaler` and `optimizer.loss_scale_config`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deepspeed.runtime.optimizer_parts.owner import Owner


class LossScaleView:
    """Shows the engine's current loss scale, and the config's keys of fp16."""

    scale_factor = 2.0

    def __init__(self, engine: Owner) -> None:
        self._engine = engine

    @property
    def cur_scale(self) -> float:
        return self._engine.loss_scale()

    loss_scale = cur_scale

    @property
    def cur_iter(self) -> int:
        """Counts the updates, including skipped ones."""
        return self._engine.global_steps

    @property
    def dynamic(self) -> bool:
        return self._engine.dynamic_loss_scale()

    dynamic_loss_scale = dynamic

    @property
    def scale_window(self) -> int:
        return self._engine._key(int, "fp16.loss_scale_window")

    @property
    def delayed_shift(self) -> int:
        return self._engine._key(int, "fp16.hysteresis")

    @property
    def consecutive_hysteresis(self) -> bool:
        return self._engine._key(bool, "fp16.consecutive_hysteresis")

    @property
    def min_scale(self) -> float:
        return self._engine._key(float, "fp16.min_loss_scale")

    min_loss_scale = min_scale
