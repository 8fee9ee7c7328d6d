"""Tells the devices of a stage 3 model's states, which engine.offload_states() may move."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from deepspeed.runtime.zero.offload_enums import OffloadStateTypeEnum

if TYPE_CHECKING:
    from deepspeed.runtime.engine import DeepSpeedEngine


def get_state_devices(model: DeepSpeedEngine, state: str | OffloadStateTypeEnum) -> set[torch.device]:
    """Returns the set of devices that hold an engine's states of a kind; empty without such states."""
    kind = OffloadStateTypeEnum(state)
    return {torch.device(device) for device in model._core.state_devices(kind.value)}
