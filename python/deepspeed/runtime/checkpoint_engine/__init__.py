"""Writes and reads single files that a script saves beside the engine's checkpoints."""

from deepspeed.runtime.checkpoint_engine.checkpoint_engine import CheckpointCommitInfo, CheckpointEngine
from deepspeed.runtime.checkpoint_engine.torch_checkpoint_engine import TorchCheckpointEngine
from deepspeed.runtime.checkpoint_engine.utils import (
    DataStatesCheckpointEngine,
    DecoupledCheckpointEngine,
    FastCheckpointEngine,
    create_checkpoint_engine,
)

__all__ = [
    "CheckpointCommitInfo",
    "CheckpointEngine",
    "DataStatesCheckpointEngine",
    "DecoupledCheckpointEngine",
    "FastCheckpointEngine",
    "TorchCheckpointEngine",
    "create_checkpoint_engine",
]
