"""Names the places and kinds of what can be offloaded."""

import enum


class OffloadDeviceEnum(str, enum.Enum):
    """Names a place: the rank's device, the CPU's memory, or a disk."""

    none = "none"
    cpu = "cpu"
    nvme = "nvme"


class OffloadStateTypeEnum(str, enum.Enum):
    """Names a kind of memory that engine.offload_states() moves."""

    optim_states = "optim_states"
    hp_params = "hp_params"
    lp_params = "lp_params"
    lp_grads = "lp_grads"
    contiguous_grad_buffer = "contiguous_grad_buffer"
