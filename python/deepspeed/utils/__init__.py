"""Provides helpers for scripts."""

from typing import TYPE_CHECKING

from deepspeed._lazy import lazy
from deepspeed.runtime.dataloader import RepeatingLoader
from deepspeed.utils.init_on_device import OnDevice
from deepspeed.utils.logging import log_dist, log_dist_once, logger, set_log_level_from_string
from deepspeed.utils.nvtx import instrument_w_nvtx
from deepspeed.utils.tensor_fragment import (
    safe_get_full_fp32_param,
    safe_get_full_grad,
    safe_get_full_optimizer_state,
    safe_get_local_fp32_param,
    safe_get_local_grad,
    safe_get_local_optimizer_state,
    safe_set_full_fp32_param,
    safe_set_full_grad,
    safe_set_full_optimizer_state,
    safe_set_local_fp32_param,
    safe_set_local_grad,
    safe_set_local_optimizer_state,
    safe_update_full_grad_vectorized,
)
from deepspeed.utils.torch import required_torch_version
from deepspeed.utils.z3_leaf_module import (
    get_z3_leaf_modules,
    set_z3_leaf_module,
    set_z3_leaf_modules,
    set_z3_leaf_modules_by_name,
    set_z3_leaf_modules_by_suffix,
    unset_z3_leaf_modules,
    z3_leaf_module,
    z3_leaf_parameter,
)

__all__ = [
    "OnDevice",
    "RepeatingLoader",
    "get_z3_leaf_modules",
    "instrument_w_nvtx",
    "log_dist",
    "log_dist_once",
    "logger",
    "required_torch_version",
    "safe_get_full_fp32_param",
    "safe_get_full_grad",
    "safe_get_full_optimizer_state",
    "safe_get_local_fp32_param",
    "safe_get_local_grad",
    "safe_get_local_optimizer_state",
    "safe_set_full_fp32_param",
    "safe_set_full_grad",
    "safe_set_full_optimizer_state",
    "safe_set_local_fp32_param",
    "safe_set_local_grad",
    "safe_set_local_optimizer_state",
    "safe_update_full_grad_vectorized",
    "set_log_level_from_string",
    "set_z3_leaf_module",
    "set_z3_leaf_modules",
    "set_z3_leaf_modules_by_name",
    "set_z3_leaf_modules_by_suffix",
    "unset_z3_leaf_modules",
    "z3_leaf_module",
    "z3_leaf_parameter",
]

if TYPE_CHECKING:
    from deepspeed.runtime.utils import see_memory_usage as see_memory_usage
    from deepspeed.utils import (
        bwc as bwc,
        comms_logging as comms_logging,
        exceptions as exceptions,
        groups as groups,
        numa as numa,
        pin_memory as pin_memory,
        timer as timer,
        types as types,
        zero_to_fp32 as zero_to_fp32,
    )
    from deepspeed.utils.comms_logging import get_caller_func as get_caller_func
    from deepspeed.utils.numa import get_numactl_cmd as get_numactl_cmd
    from deepspeed.utils.tensor_fragment import fragment_address as fragment_address
else:
    __getattr__ = lazy(
        __name__,
        submodules=("bwc", "comms_logging", "exceptions", "groups", "numa", "pin_memory", "timer", "types", "zero_to_fp32"),
        names={
            "fragment_address": "deepspeed.utils.tensor_fragment",
            "get_caller_func": "deepspeed.utils.comms_logging",
            "get_numactl_cmd": "deepspeed.utils.numa",
            "see_memory_usage": "deepspeed.runtime.utils",
        },
    )
