"""Scales the learning rate by the number of samples in each batch."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import Optimizer

from deepspeed._errors import UsageError
from deepspeed.utils.logging import logger

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    import torch


def scale_lr(base_batch_size: int, batch_size: int, base_lr: float = 1, method: str = "linear") -> float:
    """Returns the rate for batch_size samples, if base_lr is the one for base_batch_size. method: "linear", "sqrt" or "none"."""
    ratio = batch_size / base_batch_size
    scales = {"linear": ratio, "sqrt": math.sqrt(ratio), "none": 1}
    if str(method).lower() not in scales:
        raise UsageError(f"lr_scaling_method: got {method!r}, expected one of {', '.join(scales)}")
    return base_lr * scales[str(method).lower()]


class ConstantRates:
    """Keeps the current rates of an optimizer without a schedule."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer
        self._last_lr = [group["lr"] for group in optimizer.param_groups]

    def get_lr(self) -> list[float]:
        return list(self._last_lr)

    get_last_lr = get_lr

    def step(self, epoch: int | None = None) -> None:
        for group, rate in zip(self.optimizer.param_groups, self._last_lr):
            group["lr"] = rate

    def state_dict(self) -> dict[str, Any]:
        return {"_last_lr": list(self._last_lr)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._last_lr = list(state["_last_lr"])


class VariableBatchSizeLR(LRScheduler):
    """Steps another schedule, and scales its rates by the next batch's size.

    batch_sizes: of the batches of one pass over the data, which repeats.
    """

    def __init__(
        self,
        lr_scheduler: Any,
        base_batch_size: int,
        batch_sizes: Sequence[int],
        dataloader: object,
        lr_scaling_method: str = "linear",
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        self.base_lr_scheduler = lr_scheduler
        self.base_batch_size = base_batch_size
        self.batch_sizes = batch_sizes
        self.dataloader = dataloader
        self.lr_scaling_method = lr_scaling_method
        self.base_lrs = list(lr_scheduler.get_lr())
        self.last_epoch = last_epoch
        self.verbose = verbose
        self.step(0)

    @property
    def optimizer(self) -> Optimizer:  # type: ignore[override]  # it is that of the other schedule
        optimizer: Optimizer = self.base_lr_scheduler.optimizer
        return optimizer

    def step(self, epoch: int | None = None) -> None:
        """Moves on to the next batch, or to the batch `epoch`. 0 starts over, as before each pass over the data."""
        groups = self.optimizer.param_groups
        for group, rate in zip(groups, self.base_lrs if epoch == 0 else self.get_last_lr()):
            group["lr"] = rate
        self.base_lr_scheduler.step(epoch)
        self._unscaled = [group["lr"] for group in groups]
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        size = self.batch_sizes[self.last_epoch % len(self.batch_sizes)]
        for group in groups:
            group["lr"] = scale_lr(self.base_batch_size, size, group["lr"], self.lr_scaling_method)
        if self.verbose:
            logger.info(f"batch {self.last_epoch} has {size} samples: the rates are {self.get_lr()}")

    def get_last_lr(self) -> list[float | torch.Tensor]:
        """Returns the other schedule's rates without scaling."""
        return list(self._unscaled)

    def get_lr(self) -> list[float | torch.Tensor]:
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        own = {
            name: getattr(self, name)
            for name in ("base_batch_size", "lr_scaling_method", "batch_sizes", "base_lrs", "last_epoch", "verbose")
        }
        return {**own, "unscaled": self._unscaled, "base_lr_scheduler": self.base_lr_scheduler.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        state = dict(state)
        self.base_lr_scheduler.load_state_dict(state.pop("base_lr_scheduler"))
        self._unscaled = state.pop("unscaled", self._unscaled)
        for name, value in state.items():
            setattr(self, name, value)


def lr_scheduler_for_variable_batch_size(
    base_batch_size: int,
    batch_sizes: Sequence[int],
    dataloader: object,
    lr_scheduler_or_optimizer: Any,
    lr_scaling_method: str = "linear",
    verbose: bool = False,
) -> VariableBatchSizeLR:
    """Returns a VariableBatchSizeLR over a schedule, or over an optimizer's current rates."""
    base = lr_scheduler_or_optimizer
    if isinstance(base, Optimizer):
        base = ConstantRates(base)
    elif not isinstance(getattr(base, "optimizer", None), Optimizer):
        raise UsageError(f"lr_scheduler_or_optimizer: got {type(base).__name__}, expected an optimizer, or a schedule of one")
    return VariableBatchSizeLR(base, base_batch_size, batch_sizes, dataloader, lr_scaling_method, verbose=verbose)
