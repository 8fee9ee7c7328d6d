"""Descriptions of parameters in universal checkpoints."""

from dataclasses import dataclass

from deepspeed._errors import not_supported

_CORE_LOADS = 'load_checkpoint() with "checkpoint": {"load_universal": true} reads universal checkpoints'


@dataclass
class SubparamShape:
    """Says which parameters hold several ones side by side, in what shapes, and along which dimension ranks cut them."""

    patterns: list[str]
    shape: tuple[tuple[int] | int]
    partition_dim: int


enable_universal_checkpoint = not_supported("deepspeed.checkpoint.enable_universal_checkpoint", _CORE_LOADS)
load_hp_checkpoint_state = not_supported("deepspeed.checkpoint.universal_checkpoint.load_hp_checkpoint_state", _CORE_LOADS)
