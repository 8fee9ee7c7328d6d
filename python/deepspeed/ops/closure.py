"""Runs the closure that a script may pass to an optimizer's step()."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable


def loss_of(closure: Callable[[], float] | None) -> float | None:
    """Calls the closure with gradients enabled. Returns its loss; None without a closure."""
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()
