"""Provides the parts of training. Submodules are imported on first use."""

from typing import TYPE_CHECKING

from deepspeed._lazy import lazy

if TYPE_CHECKING:
    from deepspeed.runtime import (
        activation_checkpointing as activation_checkpointing,
        base_optimizer as base_optimizer,
        bf16_optimizer as bf16_optimizer,
        config as config,
        config_utils as config_utils,
        constants as constants,
        dataloader as dataloader,
        engine as engine,
        fp16 as fp16,
        lr_schedules as lr_schedules,
        pipe as pipe,
        precision_config as precision_config,
        sparse_tensor as sparse_tensor,
        utils as utils,
        zero as zero,
    )
else:
    __getattr__ = lazy(
        __name__,
        submodules=(
            "activation_checkpointing",
            "base_optimizer",
            "bf16_optimizer",
            "config",
            "config_utils",
            "constants",
            "dataloader",
            "engine",
            "fp16",
            "lr_schedules",
            "pipe",
            "precision_config",
            "sparse_tensor",
            "utils",
            "zero",
        ),
    )
