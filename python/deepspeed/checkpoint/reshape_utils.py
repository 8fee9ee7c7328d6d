"""Lists the files of a checkpoint's folder, and joins states."""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from typing import TYPE_CHECKING

import torch

from deepspeed.checkpoint.constants import (
    BF16_ZERO_FILE_PREFIX,
    FP16_ZERO_FILE_PREFIX,
    MODEL_FILE_PREFIX,
    ZERO_FILE_PREFIX,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, TypeVar

    T = TypeVar("T")


def basic_folder_validation(dir: str) -> None:
    assert os.path.exists(dir), f"{dir} path does not exist"
    assert os.path.isdir(dir), f"{dir} is not a folder"


def get_files(dir: str) -> list[str]:
    """Returns the paths of all files in a folder and its subfolders."""
    return [os.path.join(root, name) for root, _, names in os.walk(dir) for name in names]


def get_files_with_prefix(all_files: Iterable[str], prefix: str) -> list[str]:
    return sorted(path for path in all_files if os.path.basename(path).startswith(prefix))


def validate_files(file_list: list[str]) -> None:
    for path in file_list:
        if not os.path.isfile(path):
            print(f"Error: {path} is not existent")


def sort_zero_files(files: Iterable[str], prefix: str) -> list[str]:
    """Sorts optimizer files by the rank numbers in their names. Raises ValueError for a name without them."""
    pattern = re.compile(f"{prefix}([0-9]+)_{MODEL_FILE_PREFIX}([0-9]+)")

    def ranks(path: str) -> tuple[int, int]:
        match = pattern.search(path)
        if match is None:
            raise ValueError(f"Cannot parse dp_rank and mp_rank from {path}")
        return int(match[1]), int(match[2])

    return sorted(files, key=ranks)


def get_zero_files(dir: str) -> list[str]:
    """Returns the optimizer files of ZeRO by rank; [] if there are none."""
    files = get_files(dir)
    for prefix in (ZERO_FILE_PREFIX, FP16_ZERO_FILE_PREFIX, BF16_ZERO_FILE_PREFIX):
        found = get_files_with_prefix(files, prefix)
        if found:
            return sort_zero_files(found, prefix)
    return []


def partition_data(data_list: list[T], num_partitions: int) -> list[list[T]]:
    """Cuts a list into consecutive parts of equal size."""
    assert len(data_list) % num_partitions == 0, f"{len(data_list)} elements cannot be cut into {num_partitions} equal parts"
    size = len(data_list) // num_partitions
    return [data_list[begin : begin + size] for begin in range(0, len(data_list), size)]


def merge_state_dict(dict_a: Any, dict_b: Any, key_list: list[str]) -> Any:
    """Returns the keys of dict_b; those that dict_a has too are joined with it."""
    merged = ((key, merge_state(dict_a[key], value, [str(key)]) if key in dict_a else value) for key, value in dict_b.items())
    return type(dict_a)(merged)


def merge_state_list(list_a: Sequence[Any], list_b: Sequence[Any], key_list: list[str]) -> list[Any]:
    if len(list_a) != len(list_b):
        place = ".".join(key_list)
        raise ValueError(f"{place}: Cannot merge lists of different lengths, a = {len(list_a)} b = {len(list_b)}")
    return [merge_state(a, b, key_list) for a, b in zip(list_a, list_b)]


def merge_state(state_a: Any, state_b: Any, key_list: list[str] = []) -> Any:
    """Joins two states of the same structure. Tensors are concatenated; of other values the first one is kept."""
    if type(state_a) is not type(state_b):
        place = ".".join(key_list)
        raise ValueError(f"{place}: Cannot merge two states of types {type(state_a)} and type {type(state_b)}")
    if type(state_a) in (dict, OrderedDict):
        return merge_state_dict(state_a, state_b, key_list)
    if type(state_a) in (list, tuple):
        return type(state_a)(merge_state_list(state_a, state_b, key_list))
    if isinstance(state_a, torch.Tensor):
        return torch.cat([state_a, state_b], 0)
    return state_a
