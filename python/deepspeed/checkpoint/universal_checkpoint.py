"""Describes parameters in universal checkpoints."""

from dataclasses import dataclass

from deepspeed._errors import not_supported

_CORE_LOADS = 'load_checkpoint() with "checkpoint": {"load_universal": true} reads universal checkpoints'


@dataclass
class SubparamShape:
    """Says which parameters consist of several, with their shapes and the dimension that ranks cut."""

    patterns: list[str]
    shape: tuple[tuple[int] | int]
    partition_dim: int


enable_universal_checkpoint = not_supported("deepspeed.checkpoint.enable_universal_checkpoint", _CORE_LOADS)
load_hp_checkpoint_state = not_supported("deepspeed.checkpoint.universal_checkpoint.load_hp_checkpoint_state", _CORE_LOADS)
