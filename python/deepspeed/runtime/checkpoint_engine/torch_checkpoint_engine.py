"""Files of torch.save()."""

import torch

from deepspeed.checkpoint.utils import read_state
from deepspeed.runtime.checkpoint_engine.checkpoint_engine import CheckpointEngine
from deepspeed.utils.logging import log_dist

ENGINE_NAME = "TorchCheckpointEngine"


class TorchCheckpointEngine(CheckpointEngine):
    """Writes by torch.save, and reads files of tensors and plain values: what else a file wants to make is an error."""

    def __init__(self, config_params=None):
        super().__init__(config_params)
        self.name = ENGINE_NAME

    def create(self, info):
        log_dist(f"[Torch] Checkpoint {info.tag} is about to be saved!", ranks=[0])

    def save(self, state_dict, path):
        torch.save(state_dict, path)

    def load(self, path, map_location=None):
        return read_state(path, map_location)

    def commit(self, info):
        return True
