"""Recomputes the activations of blocks of a pipeline's layers in backward."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from deepspeed.runtime.activation_checkpointing import checkpointing
from deepspeed.runtime.pipe.part import PipelinePart

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


class RecomputedBlocks(PipelinePart):
    """Recomputes a PipelineModule's layers in blocks of activation_checkpoint_interval."""

    def set_checkpoint_interval(self, interval: int) -> None:
        assert interval >= 0
        self.activation_checkpoint_interval = interval
        self._precompute_checkpointable_values()

    def _precompute_checkpointable_values(self) -> None:
        """Stores for each block of layers whether it is recomputed."""
        interval = self.activation_checkpoint_interval
        if interval > 0 and self.is_checkpointable_results_interval != interval:
            self.is_checkpointable_results = [self._is_checkpointable(self.forward_funcs[a:b]) for a, b in self._blocks()]
            self.is_checkpointable_results_interval = interval

    def _blocks(self) -> list[tuple[int, int]]:
        """Returns the begin and end of each block of layers, chunk by chunk."""
        interval = self.activation_checkpoint_interval
        return [(at, min(at + interval, end)) for begin, end in self._chunks for at in range(begin, end, interval)]

    def _is_checkpointable(self, funcs: Sequence[Any]) -> bool:
        names = [type(func).__name__ for func in funcs]
        eligible = self.checkpointable_layers
        is_gpt = type(self).__name__ in ("GPTModelPipe", "GPT2ModelPipe")
        if is_gpt and self.activation_checkpoint_func is not checkpointing.non_reentrant_checkpoint:
            # The reentrant form gives an embedding no gradient, because the embedding's inputs require none.
            return all("ParallelTransformerLayerPipe" in name or name in (eligible or ()) for name in names)
        if eligible is not None:
            return all(name in eligible for name in names)
        return any(isinstance(func, nn.Module) and any(True for _ in func.parameters()) for func in funcs)
