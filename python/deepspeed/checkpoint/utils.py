"""Names the files of a checkpoint, and prepares tensors for torch.save."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch

from deepspeed import _core

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

    An engine's tensor is a view of a flat buffer, and torch.save would write the whole buffer for it. Containers keep their types.
    """
    if isinstance(item, torch.Tensor):
        return item.detach().clone() if item.device == torch.device(device) else item.detach().to(device)
    if isinstance(item, dict):
        return type(item)((key, clone_tensors_for_torch_save(value, device)) for key, value in item.items())
    if isinstance(item, (list, tuple)):
        return type(item)(clone_tensors_for_torch_save(value, device) for value in item)
    return item


def read_state(path: str | os.PathLike[str], map_location: Any = "cpu") -> Any:
    """Reads a file of torch.save() without running any code of it.

    Raises CheckpointError for anything but tensors and listed classes. map_location: as for torch.load(); None: the CPU. Tensors are
    plain ones, whatever class the file names.
    """
    from deepspeed._objects import trusts_files

    if trusts_files():
        return torch.load(path, map_location=map_location, weights_only=False)
    return _core.read_archive(os.fspath(path), _device_of(map_location))


def _device_of(map_location: Any) -> torch.device:
    """Returns the device for tensors that were saved from the CPU."""
    if callable(map_location):
        placed = map_location(torch.UntypedStorage(0), "cpu")
        return torch.device("cpu") if placed is None else placed.device
    if isinstance(map_location, dict):
        map_location = map_location.get("cpu")
    return torch.device("cpu" if map_location is None else map_location)
