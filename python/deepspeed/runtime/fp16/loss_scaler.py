"""Defines loss scalers: a constant one, and one that adapts to overflows.

That one halves after overflows and doubles after a run of good steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from deepspeed.runtime.config_utils import DeepSpeedConfigObject

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

INITIAL_LOSS_SCALE = "init_scale"
SCALE_WINDOW = "scale_window"
DELAYED_SHIFT = "delayed_shift"
CONSECUTIVE_HYSTERESIS = "consecutive_hysteresis"
MIN_LOSS_SCALE = "min_scale"


def to_python_float(t: Any) -> Any:
    return t.item() if hasattr(t, "item") else t[0]


class LossScalerBase(DeepSpeedConfigObject):
    """Holds a scale."""

    def __init__(self, cur_scale: float) -> None:
        self.cur_scale = cur_scale
        self.dynamic = False

    @property
    def loss_scale(self) -> float:
        return self.cur_scale

    def scale_gradient(self, module: torch.nn.Module, grad_in: Iterable[torch.Tensor], grad_out: object) -> tuple[torch.Tensor, ...]:
        return tuple(self.loss_scale * grad for grad in grad_in)

    def update_scale(self, overflow: bool) -> None:
        """Updates the scale after a step that may have overflowed."""

    def scale_loss(self, loss: torch.Tensor) -> torch.Tensor:
        return loss * self.loss_scale

    def backward(self, loss: torch.Tensor, retain_graph: bool = False) -> None:
        self.scale_loss(loss).backward(retain_graph=retain_graph)


class LossScaler(LossScalerBase):
    """Keeps its scale."""

    def __init__(self, scale: float = 1) -> None:
        super().__init__(scale)

    def has_overflow(self, params: object) -> bool:
        return False


class DynamicLossScaler(LossScalerBase):
    """Divides its scale after `delayed_shift` overflows, and multiplies it after `scale_window` good steps."""

    def __init__(
        self,
        init_scale: float = 2**32,
        scale_factor: float = 2.0,
        scale_window: int = 1000,
        min_scale: float = 1,
        delayed_shift: int = 1,
        consecutive_hysteresis: bool = False,
        raise_error_at_min_scale: bool = True,
        dtype: torch.dtype = torch.half,
    ) -> None:
        super().__init__(init_scale)
        self.dynamic = True
        self.cur_iter = 0
        self.last_overflow_iter = -1
        self.scale_factor = scale_factor
        self.scale_window = scale_window
        self.min_scale = min_scale
        self.delayed_shift = delayed_shift
        self.cur_hysteresis = delayed_shift
        self.consecutive_hysteresis = consecutive_hysteresis
        self.raise_error_at_min_scale = raise_error_at_min_scale
        self.dtype = dtype

    def has_overflow_serial(self, params: Iterable[torch.Tensor]) -> bool:
        return any(param.grad is not None and not bool(torch.isfinite(param.grad).all()) for param in params)

    has_overflow = has_overflow_serial

    def update_scale(self, overflow: bool) -> None:
        if overflow:
            self._shrink()
        else:
            self._grow()
        self.cur_iter += 1

    def _shrink(self) -> None:
        if self.delayed_shift == 1 or self.cur_hysteresis == 1:
            if self.cur_scale == self.min_scale and self.raise_error_at_min_scale:
                raise Exception("Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.")
            self.cur_scale = max(self.cur_scale / self.scale_factor, self.min_scale)
        else:
            self.cur_hysteresis -= 1
        self.last_overflow_iter = self.cur_iter

    def _grow(self) -> None:
        if self.consecutive_hysteresis:
            self.cur_hysteresis = self.delayed_shift
        if (self.cur_iter - self.last_overflow_iter) % self.scale_window == 0:
            if not self.consecutive_hysteresis:
                self.cur_hysteresis = self.delayed_shift
            self.cur_scale *= self.scale_factor


def CreateLossScaler(
    dtype: torch.dtype, static_loss_scale: float, dynamic_scaling: bool, dynamic_loss_args: Mapping[str, Any] | None
) -> LossScalerBase:
    """Returns the scaler for a dtype. Only fp16 needs scaling."""
    if dtype == torch.half and dynamic_scaling:
        return DynamicLossScaler(dtype=dtype, **(dynamic_loss_args or {}))
    return LossScaler(scale=static_loss_scale if dtype == torch.half else 1.0)
