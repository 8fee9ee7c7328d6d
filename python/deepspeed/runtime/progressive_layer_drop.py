"""Lowers the share of layers that a model keeps as training goes (arXiv:2010.13369)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any


class ProgressiveLayerDrop:
    """Follows the schedule independently of an engine.

    An engine follows its own if the config has the section. theta: the final share. gamma: how fast the share falls to it.
    """

    def __init__(self, theta: float = 0.5, gamma: float = 0.001) -> None:
        self.theta = theta
        self.gamma = gamma
        self.current_theta = 1.0

    def get_state(self) -> dict[str, Any]:
        """Returns the keyword arguments for a model's forward."""
        return {"progressive_layer_drop": True, "pld_theta": self.get_theta()}

    def get_theta(self) -> float:
        return self.current_theta

    def update_state(self, global_step: int) -> None:
        self.current_theta = (1.0 - self.theta) * math.exp(-self.gamma * global_step) + self.theta
