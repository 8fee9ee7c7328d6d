"""Where the states of a model at stage 3 are, beside what engine.offload_states() moves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from deepspeed.runtime.zero.offload_enums import OffloadStateTypeEnum

if TYPE_CHECKING:
    from deepspeed.runtime.engine import DeepSpeedEngine


def get_state_devices(model: DeepSpeedEngine, state: str | OffloadStateTypeEnum) -> set[torch.device]:
    """Returns the devices on which an engine's states of the kind are, as a set; none where it has no such states."""
    kind = OffloadStateTypeEnum(state)
    return {torch.device(device) for device in model._core.state_devices(kind.value)}
