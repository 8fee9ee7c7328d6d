"""Files of torch.save()."""
import torch

from deepspeed.runtime.checkpoint_engine.checkpoint_engine import CheckpointEngine
from deepspeed.utils.logging import log_dist

ENGINE_NAME = "TorchCheckpointEngine"


class TorchCheckpointEngine(CheckpointEngine):
    """Writes by torch.save and reads by torch.load, which runs what a file says: load files that you trust."""

    def __init__(self, config_params=None):
        super().__init__(config_params)
        self.name = ENGINE_NAME

    def create(self, info):
        log_dist(f"[Torch] Checkpoint {info.tag} is about to be saved!", ranks=[0])

    def save(self, state_dict, path):
        torch.save(state_dict, path)

    def load(self, path, map_location=None):
        return torch.load(path, map_location=map_location, weights_only=False)

    def commit(self, info):
        return True
