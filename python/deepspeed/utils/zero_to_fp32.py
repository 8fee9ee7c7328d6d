"""Reads a checkpoint's fp32 weights as state dicts, and writes them as files."""

from __future__ import annotations

import glob
import os
import re
from collections import OrderedDict
from typing import TYPE_CHECKING

from deepspeed import _core
from deepspeed.runtime.zero.partition_parameters import GatheredParameters, is_zero_param
from deepspeed.utils.logging import logger

if TYPE_CHECKING:
    import torch


def get_fp32_state_dict_from_zero_checkpoint(
    checkpoint_dir: str | os.PathLike[str],
    tag: str | None = None,
    exclude_frozen_parameters: bool = False,
    lazy_mode: bool = False,
    mp_rank: int | None = None,
) -> dict[str, torch.Tensor]:
    """Returns {name: fp32 tensor on the CPU} of a checkpoint of any stage.

    tag: by default the one that `latest` names. lazy_mode has no effect. mp_rank: the model-parallel rank whose part is read, if ranks
    have cut layers; without it such a checkpoint raises UsageError. Raises ValueError without `latest`, FileNotFoundError without the
    folder, and CheckpointError for files that do not fit.
    """
    _chosen_folder(checkpoint_dir, tag)
    return OrderedDict(_core.fp32_state_dict(os.fspath(checkpoint_dir), tag, exclude_frozen_parameters, mp_rank))


def convert_zero_checkpoint_to_fp32_state_dict(
    checkpoint_dir: str | os.PathLike[str],
    output_dir: str | os.PathLike[str],
    max_shard_size: str | int | None = "5GB",
    safe_serialization: bool = False,
    tag: str | None = None,
    exclude_frozen_parameters: bool = False,
    mp_rank: int | None = None,
) -> None:
    """Writes the fp32 weights as files for torch.load or safetensors, in shards if needed.

    max_shard_size: such as "5GB"; None: one file. safe_serialization: writes safetensors. mp_rank: the model-parallel rank whose part is
    written, if ranks have cut layers; None: each part gets files of its own, named mp_rank_00_... Raises ValueError, FileNotFoundError
    and CheckpointError as get_fp32_state_dict_from_zero_checkpoint() does.
    """
    _chosen_folder(checkpoint_dir, tag)
    size = "1000PB" if max_shard_size is None else max_shard_size
    folder, output = os.fspath(checkpoint_dir), os.fspath(output_dir)
    _core.convert_to_fp32(folder, output, str(size), safe_serialization, tag, exclude_frozen_parameters, mp_rank)


def load_state_dict_from_zero_checkpoint(
    model: torch.nn.Module, checkpoint_dir: str | os.PathLike[str], tag: str | None = None, mp_rank: int | None = None
) -> torch.nn.Module:
    """Loads the fp32 weights into the model, moves it to the CPU, and returns it.

    A model that stage 3 has partitioned stays on its device and keeps its dtype; then the call is collective. mp_rank: as for
    get_fp32_state_dict_from_zero_checkpoint().
    """
    logger.info("Extracting fp32 weights")
    state = get_fp32_state_dict_from_zero_checkpoint(checkpoint_dir, tag, mp_rank=mp_rank)
    params = list(model.parameters())
    if not any(is_zero_param(param) for param in params):
        model = model.cpu()
    with GatheredParameters(params, modifier_rank=0):
        model.load_state_dict(state, strict=False)
    return model


def get_checkpoint_files(checkpoint_dir: str | os.PathLike[str], glob_pattern: str) -> list[str]:
    """Returns the files that match a pattern, in numeric order. Raises FileNotFoundError if there are none."""
    files = sorted(glob.glob(os.path.join(checkpoint_dir, glob_pattern)), key=_numbers)
    if not files:
        raise FileNotFoundError(f"can't find {glob_pattern} files in directory '{checkpoint_dir}'")
    return files


def get_optim_files(checkpoint_dir: str | os.PathLike[str]) -> list[str]:
    return get_checkpoint_files(checkpoint_dir, "*_optim_states.pt")


def get_model_state_files(checkpoint_dir: str | os.PathLike[str]) -> list[str]:
    return get_checkpoint_files(checkpoint_dir, "*_model_states.pt")


def get_model_state_file(checkpoint_dir: str | os.PathLike[str], zero_stage: int) -> str:
    """Returns the file of the weights; at stage 3 rank 0's."""
    if not os.path.isdir(checkpoint_dir):
        raise FileNotFoundError(f"Directory '{checkpoint_dir}' doesn't exist")
    name = "mp_rank_00_model_states.pt" if zero_stage <= 2 else "zero_pp_rank_0_mp_rank_00_model_states.pt"
    path = os.path.join(checkpoint_dir, name)
    if not os.path.exists(path):
        raise FileNotFoundError(f"can't find model states file at '{path}'")
    return path


def _numbers(path: str) -> list[int | str]:
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", os.path.basename(path))]


def _chosen_folder(checkpoint_dir: str | os.PathLike[str], tag: str | None) -> str:
    latest = os.path.join(checkpoint_dir, "latest")
    if tag is None and not os.path.isfile(latest):
        raise ValueError(f"Unable to find 'latest' file at {latest}")
    folder = os.path.join(checkpoint_dir, _core.chosen_tag(os.fspath(checkpoint_dir), tag))
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"Directory '{folder}' doesn't exist")
    return folder
