"""Reads a checkpoint's optimizer files for another number of ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from deepspeed.checkpoint.constants import BASE_OPTIMIZER_STATE, GROUP_PADDINGS, OPTIMIZER_STATE_DICT, PARTITION_COUNT
from deepspeed.checkpoint.reshape_3d_utils import get_model_3d_descriptor, model_3d_desc
from deepspeed.checkpoint.reshape_utils import basic_folder_validation, get_zero_files, merge_state
from deepspeed.checkpoint.utils import read_state

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

GROUP_STATE_KEY = "state"


class ZeROCheckpoint:
    """Finds and joins the files that a position of the target degrees needs. At first the target degrees are those of the source."""

    def __init__(self, dir: str, source_3d: model_3d_desc | None = None) -> None:
        basic_folder_validation(dir)
        self.dir = dir
        self.file_list = get_zero_files(dir)
        self.num_files = len(self.file_list)
        assert self.num_files > 0, f"No ZeRO files found in {dir}"
        self.src_3d = source_3d or get_model_3d_descriptor(dir)
        self.reshape(model_3d_desc(self.src_3d.pp_degree, self.src_3d.tp_degree, self.src_3d.dp_degree))

    def reshape(self, target_3d_desc: model_3d_desc) -> None:
        """Sets the target degrees, none of which may be larger than the source's."""
        self.target_3d = target_3d_desc
        self._3d_file_map = self.src_3d.reshape(target_3d_desc)

    def get_src_world_size(self) -> int:
        return self.src_3d.world_size()

    def get_src_tp_degree(self) -> int:
        return self.src_3d.tp_degree

    def get_src_pp_degree(self) -> int:
        return self.src_3d.pp_degree

    def get_src_dp_degree(self) -> int:
        return self.src_3d.dp_degree

    def get_file_indices_for_rank(self, pp_index: int, tp_index: int, dp_index: int) -> list[int]:
        assert dp_index < len(self._3d_file_map), f"DP index {dp_index} >= DP degree {len(self._3d_file_map)}"
        return self._3d_file_map[dp_index].get_data(pp_index, tp_index)

    def get_files_for_rank(self, pp_index: int, tp_index: int, dp_index: int) -> list[str]:
        return [self.file_list[index] for index in self.get_file_indices_for_rank(pp_index, tp_index, dp_index)]

    def get_state_for_rank(
        self, pp_index: int, tp_index: int, dp_index: int, keys_to_ignore: Sequence[str] = [], strip_tensor_paddings: bool = True
    ) -> Any:
        """Returns the joined state of a position's files. By default the padding at the end of partitions is removed."""
        merged = None
        for path in self.get_files_for_rank(pp_index, tp_index, dp_index):
            state = read_state(path)
            for key in keys_to_ignore:
                state.pop(key, None)
            if strip_tensor_paddings:
                _strip_paddings(state)
            merged = state if merged is None else merge_state(merged, state)
        self._adjust(merged, strip_tensor_paddings)
        return merged

    def print_3d_index_map(self, tag: str | None = None) -> None:
        if tag:
            print(f"3D index map: {tag}")
        for dp_index, of_rank in enumerate(self._3d_file_map):
            of_rank.print_data(f"dp = {dp_index}")

    def print_3d_file_map(self, tag: str | None = None) -> None:
        if tag:
            print(f"3D file map: {tag}")
        for dp_index, of_rank in enumerate(self._3d_file_map):
            for (pp_index, tp_index), indices in of_rank.map.items():
                print(f"{pp_index}, {tp_index}, {dp_index} => {[self.file_list[index] for index in indices]}")

    def _adjust(self, state: dict[str, Any] | None, is_stripped: bool) -> None:
        optimizer = (state or {}).get(OPTIMIZER_STATE_DICT) or {}
        if optimizer.get(PARTITION_COUNT):
            optimizer[PARTITION_COUNT] = [self.target_3d.dp_degree] * len(optimizer[PARTITION_COUNT])
        if is_stripped and optimizer.get(GROUP_PADDINGS):
            optimizer[GROUP_PADDINGS] = [0] * len(optimizer[GROUP_PADDINGS])


def _strip_paddings(state: dict[str, Any]) -> None:
    optimizer = state.get(OPTIMIZER_STATE_DICT) or {}
    groups = (optimizer.get(BASE_OPTIMIZER_STATE) or {}).get(GROUP_STATE_KEY) or {}
    paddings = optimizer.get(GROUP_PADDINGS)
    if paddings is None:
        return
    for index, group in groups.items():
        for name, value in group.items():
            if name != "step" and isinstance(value, torch.Tensor) and paddings[index]:
                group[name] = value[: value.numel() - paddings[index]].clone()
