"""The parts of training. Submodules are imported when they are asked for."""

from deepspeed._lazy import lazy

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
