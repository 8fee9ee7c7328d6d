"""Finds a checkpoint's degrees of pipeline, tensor and data parallelism, and reduces them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepspeed.checkpoint.constants import (
    CHECKPOINT_PARALLEL_DIMS,
    CHECKPOINT_PP_DEGREE,
    CHECKPOINT_TP_DEGREE,
    LAYER_FILE_PREFIX,
    MODEL_FILE_PREFIX,
)
from deepspeed.checkpoint.reshape_meg_2d import meg_2d_parallel_map, reshape_meg_2d_parallel
from deepspeed.checkpoint.reshape_utils import get_files, get_files_with_prefix, get_zero_files, partition_data
from deepspeed.checkpoint.utils import read_state

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

PP_DIM, TP_DIM, DP_DIM = "PP", "TP", "DP"


class model_3d_desc:
    """Holds the degrees of pipeline, tensor and data parallelism."""

    def __init__(self, pp_degree: int = 1, tp_degree: int = 1, dp_degree: int = 1) -> None:
        self.pp_degree = pp_degree
        self.tp_degree = tp_degree
        self.dp_degree = dp_degree

    def _degrees(self) -> tuple[tuple[str, int], ...]:
        return ((PP_DIM, self.pp_degree), (TP_DIM, self.tp_degree), (DP_DIM, self.dp_degree))

    def get_desc(self) -> str:
        return f"{PP_DIM},{TP_DIM},{DP_DIM} = ({self.pp_degree}, {self.tp_degree}, {self.dp_degree})"

    def world_size(self) -> int:
        return self.pp_degree * self.tp_degree * self.dp_degree

    def is_valid(self, pp_index: int, tp_index: int, dp_index: int) -> tuple[bool, list[str]]:
        """Returns (whether the position exists, list of texts that say what is wrong)."""
        errors = [
            f"{name} indexing error: index {index} >= degree {degree}"
            for index, (name, degree) in zip((pp_index, tp_index, dp_index), self._degrees())
            if index >= degree
        ]
        return not errors, errors

    def can_reshape(self, target_3d_desc: model_3d_desc) -> tuple[bool, list[str]]:
        """Returns (whether no degree grows, list of texts that name those that would)."""
        errors = [
            f"Expansion reshape not supported - {name}: {degree} ---> {wanted}"
            for (name, degree), (_, wanted) in zip(self._degrees(), target_3d_desc._degrees())
            if wanted > degree
        ]
        return not errors, errors

    def reshape(self, target_3d_desc: model_3d_desc, verbose: bool = False) -> list[meg_2d_parallel_map]:
        """Maps positions to the files to join, for each data-parallel rank of the target."""
        is_valid, errors = self.can_reshape(target_3d_desc)
        assert is_valid, ",".join(errors)
        target = reshape_meg_2d_parallel(
            self.pp_degree, self.tp_degree, target_3d_desc.pp_degree, target_3d_desc.tp_degree, verbose=verbose
        )
        whole = flatten_dp_dimension(target, self.pp_degree * self.tp_degree, self.dp_degree)
        return unflatten_dp_dimension(whole, target_3d_desc.dp_degree)


def _places(meg_2d_map: meg_2d_parallel_map) -> Iterator[tuple[int, int]]:
    return ((pp, tp) for pp in range(meg_2d_map.pp_degree) for tp in range(meg_2d_map.tp_degree))


def flatten_dp_dimension(meg_2d_map: meg_2d_parallel_map, src_2d_size: int, dp_degree: int) -> meg_2d_parallel_map:
    """Returns the map with the files of all data-parallel ranks at each position."""
    whole = meg_2d_parallel_map(meg_2d_map.pp_degree, meg_2d_map.tp_degree)
    for pp_index, tp_index in _places(meg_2d_map):
        for first in meg_2d_map.get_data(pp_index, tp_index):
            whole.add_data(pp_index, tp_index, [first + rank * src_2d_size for rank in range(dp_degree)])
    return whole


def unflatten_dp_dimension(meg_2d_map: meg_2d_parallel_map, dp_degree: int) -> list[meg_2d_parallel_map]:
    """Splits the files at each position among dp_degree ranks: one map for each rank."""
    maps = [meg_2d_parallel_map(meg_2d_map.pp_degree, meg_2d_map.tp_degree) for _ in range(dp_degree)]
    for pp_index, tp_index in _places(meg_2d_map):
        parts = partition_data(meg_2d_map.get_data(pp_index, tp_index), dp_degree)
        for of_rank, files in zip(maps, parts):
            of_rank.add_data(pp_index, tp_index, files)
    return maps


def get_model_3d_descriptor(dir: str) -> model_3d_desc:
    """Finds the degrees of the checkpoint in a folder. Raises RuntimeError if its files contradict each other."""
    files = get_files(dir)
    metadata = []
    for path in get_files_with_prefix(files, MODEL_FILE_PREFIX):
        state = read_state(path)
        metadata.append((path, {CHECKPOINT_PARALLEL_DIMS: state.get(CHECKPOINT_PARALLEL_DIMS)}))
    return get_model_3d_descriptor_from_metadata(files, get_zero_files(dir), metadata)


def get_model_3d_descriptor_from_metadata(
    file_list: list[str], zero_file_list: list[str], model_state_metadata: Sequence[tuple[str, Mapping[str, Any]]]
) -> model_3d_desc:
    """Finds the degrees from the model files' metadata, otherwise from the number of files.

    model_state_metadata: [(path of a model file, {its keys})].
    """
    said = _said_degrees(model_state_metadata)
    num_models, num_zero = len(model_state_metadata), len(zero_file_list)
    if said is None:
        first_layers = len(get_files_with_prefix(file_list, f"{LAYER_FILE_PREFIX}01"))
        tp_degree = first_layers or num_models
        pp_degree = num_models // tp_degree if first_layers else 1
    else:
        pp_degree, tp_degree = said
        where = f"{CHECKPOINT_PP_DEGREE}={pp_degree} * {CHECKPOINT_TP_DEGREE}={tp_degree}"
        if num_models != pp_degree * tp_degree:
            raise RuntimeError(f"Checkpoint model-state file count {num_models} does not match {where}.")
        if num_zero % (pp_degree * tp_degree) != 0:
            raise RuntimeError(f"Checkpoint ZeRO file count {num_zero} is not divisible by {where}.")
    return model_3d_desc(pp_degree, tp_degree, max(1, num_zero // (pp_degree * tp_degree)))


def _said_degrees(model_state_metadata: Sequence[tuple[str, Mapping[str, Any]]]) -> tuple[int, int] | None:
    """Returns the (pipeline, tensor) degrees that all files state; None if no file states any."""
    said = {path: _degrees_in(path, keys.get(CHECKPOINT_PARALLEL_DIMS)) for path, keys in model_state_metadata}
    missing = [path for path, degrees in said.items() if degrees is None]
    told = [degrees for degrees in said.values() if degrees is not None]
    if not told:
        return None
    if missing:
        raise RuntimeError(f"Checkpoint {CHECKPOINT_PARALLEL_DIMS} is missing from model-state files: {missing}")
    if len(set(told)) != 1:
        raise RuntimeError(f"Checkpoint {CHECKPOINT_PARALLEL_DIMS} disagrees across model-state files: {told}")
    return told[0]


def _degrees_in(path: str, dimensions: object) -> tuple[int, int] | None:
    if dimensions is None:
        return None
    if not isinstance(dimensions, dict):
        raise RuntimeError(f"Checkpoint {CHECKPOINT_PARALLEL_DIMS} must be a dictionary in {path}.")
    degrees: tuple[Any, Any] = dimensions.get(CHECKPOINT_PP_DEGREE), dimensions.get(CHECKPOINT_TP_DEGREE)
    for key, value in zip((CHECKPOINT_PP_DEGREE, CHECKPOINT_TP_DEGREE), degrees):
        if type(value) is not int or value < 1:
            raise RuntimeError(f"Checkpoint {key} must be a positive integer in {path}, got {value!r}.")
    return degrees
