"""Lists the optimizers that run at all stages without zero_allow_untested_optimizer."""

import torch

from deepspeed.ops.adagrad import DeepSpeedCPUAdagrad
from deepspeed.ops.adam import DeepSpeedCPUAdam, FusedAdam
from deepspeed.ops.lion import DeepSpeedCPULion, FusedLion

ZERO_SUPPORTED_OPTIMIZERS = [
    torch.optim.Adam,
    torch.optim.AdamW,
    FusedAdam,
    DeepSpeedCPUAdam,
    torch.optim.Adagrad,
    DeepSpeedCPUAdagrad,
    DeepSpeedCPULion,
    FusedLion,
]
