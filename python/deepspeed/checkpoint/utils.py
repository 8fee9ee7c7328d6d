"""Names of files in a checkpoint, and tensors as torch.save should get them."""

from __future__ import annotations

import os
import pickle
from typing import TYPE_CHECKING

import torch

from deepspeed._errors import CheckpointError

if TYPE_CHECKING:
    from typing import Any


def get_model_ckpt_name_for_rank(base_folder: str, mp_rank_str: str) -> str:
    return os.path.join(base_folder, f"mp_rank_{mp_rank_str}_model_states.pt")


def get_zero_ckpt_name_for_rank(base_folder: str, dp_rank: int, mp_rank: int) -> str:
    return os.path.join(base_folder, f"zero_pp_rank_{dp_rank}_mp_rank_{mp_rank:02d}_optim_states.pt")


def get_layer_ckpt_name_for_rank(base_folder: str, layer_id: int, tp_rank: int) -> str:
    return os.path.join(base_folder, f"layer_{layer_id}-model_{tp_rank:02d}_model_states.pt")


def clone_tensors_for_torch_save(item: Any, device: torch.device | str = torch.device("cpu")) -> Any:
    """Returns the containers with copies of their tensors.

    A tensor of an engine is a view of a flat buffer, all of which torch.save would write for it. Containers keep their types.
    """
    if isinstance(item, torch.Tensor):
        return item.detach().clone() if item.device == torch.device(device) else item.detach().to(device)
    if isinstance(item, dict):
        return type(item)((key, clone_tensors_for_torch_save(value, device)) for key, value in item.items())
    if isinstance(item, (list, tuple)):
        return type(item)(clone_tensors_for_torch_save(value, device) for value in item)
    return item


def read_state(path: str | os.PathLike[str], map_location: str = "cpu") -> Any:
    """Reads a file of torch.save() without making what it must not: classes that are no safe globals are a CheckpointError."""
    from deepspeed._objects import safe_globals

    try:
        with torch.serialization.safe_globals(safe_globals()):
            return torch.load(path, map_location=map_location, weights_only=True)
    except pickle.UnpicklingError as error:
        lines = str(error).rpartition("WeightsUnpickler error: ")[2].strip().splitlines()
        cause = lines[0].partition(" Please ")[0] if lines else "cannot be read."
        raise CheckpointError(
            f"{os.fspath(path)}: {cause} Where you trust the file, call torch.serialization.add_safe_globals([...]) before, or set "
            "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1"
        ) from None
