"""The base of classes that write and read the files of a checkpoint."""

import abc
import os
from dataclasses import dataclass


@dataclass
class CheckpointCommitInfo:
    """Names a checkpoint that is being saved."""

    tag: str
    save_dir: str
    save_latest: bool


class CheckpointEngine(abc.ABC):
    """Saves and loads files between create() and commit() of a checkpoint."""

    def __init__(self, config_params=None):
        self.name = None

    @abc.abstractmethod
    def create(self, info):
        """Is called before the first file of a checkpoint."""

    @abc.abstractmethod
    def save(self, state_dict, path):
        """Writes a file."""

    @abc.abstractmethod
    def load(self, path, map_location=None):
        """Reads a file."""

    @abc.abstractmethod
    def commit(self, info):
        """Is called after the last file; returns whether the checkpoint is whole."""

    def makedirs(self, path, exist_ok=False):
        os.makedirs(path, exist_ok=exist_ok)

    def is_data_parallel_writer(self, dp_rank):
        return dp_rank == 0

    def is_decoupled(self):
        return False

    def set_commit_info(self, info):
        """Does nothing: files are written at once."""

    def get_commit_info(self):
        return None

    def cleanup(self):
        """Does nothing: nothing is held."""

    def preserves_storage_sharing(self):
        return True
