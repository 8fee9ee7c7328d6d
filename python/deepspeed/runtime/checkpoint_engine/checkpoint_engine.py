"""Defines the base of classes that write and read checkpoint files."""

from __future__ import annotations

import abc
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any


@dataclass
class CheckpointCommitInfo:
    """Names a checkpoint that is being saved."""

    tag: str
    save_dir: str
    save_latest: bool


class CheckpointEngine(abc.ABC):
    """Saves and loads files between create() and commit() of a checkpoint."""

    def __init__(self, config_params: object = None) -> None:
        self.name: str | None = None

    @abc.abstractmethod
    def create(self, info: CheckpointCommitInfo) -> None:
        """Begins a checkpoint, before its first file."""

    @abc.abstractmethod
    def save(self, state_dict: Any, path: str) -> None:
        """Writes a file."""

    @abc.abstractmethod
    def load(self, path: str, map_location: Any = None) -> Any:
        """Reads a file."""

    @abc.abstractmethod
    def commit(self, info: CheckpointCommitInfo) -> bool:
        """Ends a checkpoint, after its last file. Returns whether it is complete."""

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        os.makedirs(path, exist_ok=exist_ok)

    def is_data_parallel_writer(self, dp_rank: int) -> bool:
        return dp_rank == 0

    def is_decoupled(self) -> bool:
        return False

    def set_commit_info(self, info: CheckpointCommitInfo) -> None:
        """Changes nothing: files are written at once."""

    def get_commit_info(self) -> CheckpointCommitInfo | None:
        return None

    def cleanup(self) -> None:
        """Changes nothing, since nothing is held."""

    def preserves_storage_sharing(self) -> bool:
        return True
