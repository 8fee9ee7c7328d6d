"""Where the states of a model at stage 3 are, beside what engine.offload_states() moves."""

import torch

from deepspeed.runtime.zero.offload_enums import OffloadStateTypeEnum


def get_state_devices(model, state):
    """Returns the devices on which an engine's states of the kind are, as a set; none where it has no such states."""
    kind = OffloadStateTypeEnum(state)
    return {torch.device(device) for device in model._core.state_devices(kind.value)}
