"""Chooses the class that writes a config's files."""

from __future__ import annotations

from deepspeed._errors import not_supported_class
from deepspeed.runtime.checkpoint_engine.checkpoint_engine import CheckpointEngine
from deepspeed.runtime.checkpoint_engine.torch_checkpoint_engine import TorchCheckpointEngine

_WAY_OUT = "save_checkpoint() of the engine writes in the background where the config's checkpoint.writer says so"

FastCheckpointEngine = not_supported_class("FastCheckpointEngine", _WAY_OUT, (CheckpointEngine,))
DecoupledCheckpointEngine = not_supported_class("DecoupledCheckpointEngine", _WAY_OUT, (CheckpointEngine,))
DataStatesCheckpointEngine = not_supported_class("DataStatesCheckpointEngine", _WAY_OUT, (CheckpointEngine,))
NebulaCheckpointEngine = not_supported_class("NebulaCheckpointEngine", _WAY_OUT, (CheckpointEngine,))


def create_checkpoint_engine(
    config_params: object = None, groups: object = None, zero_stage: int = 0, has_moe_layers: bool = False, optimize_dp_state: bool = False
) -> CheckpointEngine:
    """Returns a TorchCheckpointEngine: the core writes the engine's own files."""
    return TorchCheckpointEngine(config_params)
