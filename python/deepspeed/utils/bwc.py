"""Reads an mpu object by the names of its older and newer versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from torch.distributed import ProcessGroup


def _first(mpu: object, names: Sequence[str], default: Any) -> Any:
    if mpu is None:
        return default
    for name in names:
        if hasattr(mpu, name):
            return getattr(mpu, name)()
    return default


_TENSOR = ("get_tensor_model_parallel_{}", "get_slice_parallel_{}", "get_model_parallel_{}")
_PIPE = ("get_pipeline_model_parallel_{}", "get_pipe_parallel_{}")


def bwc_tensor_model_parallel_rank(mpu: object = None) -> int:
    """Returns the rank in the tensor parallel group; 0 without an mpu."""
    told: int = _first(mpu, [name.format("rank") for name in _TENSOR], 0)
    return told


def bwc_tensor_model_parallel_world_size(mpu: object = None) -> int:
    """Returns the size of the tensor parallel group; 1 without an mpu."""
    told: int = _first(mpu, [name.format("world_size") for name in _TENSOR], 1)
    return told


def bwc_tensor_model_parallel_group(mpu: object = None) -> ProcessGroup | None:
    """Returns the tensor parallel group; None without an mpu."""
    group: ProcessGroup | None = _first(mpu, [name.format("group") for name in _TENSOR], None)
    return group


def bwc_pipeline_parallel_world_size(mpu: object = None) -> int:
    """Returns the number of pipeline stages; 1 without an mpu."""
    told: int = _first(mpu, [name.format("world_size") for name in _PIPE], 1)
    return told


def bwc_pipeline_parallel_group(mpu: object = None) -> ProcessGroup | None:
    """Returns the group of the pipeline; None without an mpu."""
    group: ProcessGroup | None = _first(mpu, [name.format("group") for name in _PIPE], None)
    return group
