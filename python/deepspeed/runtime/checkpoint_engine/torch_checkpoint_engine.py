"""Writes and reads files of torch.save()."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from deepspeed.checkpoint.utils import read_state
from deepspeed.runtime.checkpoint_engine.checkpoint_engine import CheckpointEngine
from deepspeed.utils.logging import log_dist

if TYPE_CHECKING:
    from typing import Any

    from deepspeed.runtime.checkpoint_engine.checkpoint_engine import CheckpointCommitInfo

ENGINE_NAME = "TorchCheckpointEngine"


class TorchCheckpointEngine(CheckpointEngine):
    """Writes by torch.save, and reads files of tensors and plain values. Raises CheckpointError for anything else in a file."""

    def __init__(self, config_params: object = None) -> None:
        super().__init__(config_params)
        self.name = ENGINE_NAME

    def create(self, info: CheckpointCommitInfo) -> None:
        log_dist(f"[Torch] Checkpoint {info.tag} is about to be saved!", ranks=[0])

    def save(self, state_dict: Any, path: str) -> None:
        torch.save(state_dict, path)

    def load(self, path: str, map_location: Any = None) -> Any:
        return read_state(path, map_location)

    def commit(self, info: CheckpointCommitInfo) -> bool:
        return True
