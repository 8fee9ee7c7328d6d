"""Declares what the parts of a PipelineModule share, for type checkers and readers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from torch import nn

    from deepspeed.runtime.pipe.topology import PipelineParallelGrid, ProcessTopology


class PipelinePart:
    """Declares what PipelineModule has, for its parts."""

    global_rank: int
    forward_funcs: list[Any]
    activation_checkpoint_interval: int
    activation_checkpoint_func: Callable[..., Any]
    checkpointable_layers: list[str] | None
    is_checkpointable_results: list[bool]
    is_checkpointable_results_interval: int | None
    tied_comms: dict[str, dict[str, Any]]
    tied_modules: nn.ModuleDict
    tied_weight_attrs: dict[str, list[str]]
    _layer_specs: list[Any]
    _topo: ProcessTopology
    _grid: PipelineParallelGrid
    _layer_indices: list[int]
    _chunks: list[tuple[int, int]]

    if TYPE_CHECKING:

        def _device(self) -> str: ...

        def mpu(self) -> PipelineParallelGrid: ...

        def num_pipeline_stages(self) -> int: ...

        def stage_owner(self, layer_idx: int) -> int: ...
