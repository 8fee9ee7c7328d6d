from typing import TYPE_CHECKING

from deepspeed._lazy import lazy
from deepspeed.ops.adam.cpu_adam import DeepSpeedCPUAdam
from deepspeed.ops.adam.fused_adam import FusedAdam

__all__ = ["DeepSpeedCPUAdam", "FusedAdam"]

if not TYPE_CHECKING:
    __getattr__ = lazy(__name__)
