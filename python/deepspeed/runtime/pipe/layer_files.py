"""Writes and reads files of single layers, which any number of stages can load."""

from __future__ import annotations

import glob
import os
from typing import TYPE_CHECKING

from torch import nn

from deepspeed._errors import NotSupportedError
from deepspeed.runtime.partitions import partition_uniform
from deepspeed.runtime.pipe.ties import TiedWeights

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deepspeed.runtime.checkpoint_engine.checkpoint_engine import CheckpointEngine


class LayerFiles(TiedWeights):
    """Writes and reads a PipelineModule layer by layer, with a checkpoint engine."""

    checkpoint_parallel_write_pipeline = False  # whether all data-parallel ranks write some of the layers each

    def ckpt_prefix(self, checkpoints_path: str, tag: object) -> str:
        """Returns the prefix of this rank's file names: .../tag/module-pipe_00."""
        coord = self._topo.get_coord(rank=self.global_rank)
        places = [f"-{axis}_{getattr(coord, axis):02d}" for axis in self._topo.get_axis_names() if axis != "data"]
        return os.path.join(checkpoints_path, str(tag), "module" + "".join(places))

    def ckpt_layer_path(self, ckpt_dir: str, local_layer_idx: int) -> str:
        """Returns the file of the layer at an index of forward_funcs: .../layer_03-model_states.pt."""
        place = self._topo.get_rank_repr(rank=self.global_rank)
        name = f"layer_{self._layer_indices[local_layer_idx]:02d}{'-' if place else ''}{place}-model_states.pt"
        return os.path.join(ckpt_dir, name)

    def ckpt_layer_path_list(self, ckpt_dir: str, local_layer_idx: int) -> list[str]:
        """Returns the files of that layer, one for each slice of the model."""
        return sorted(glob.glob(os.path.join(ckpt_dir, f"layer_{self._layer_indices[local_layer_idx]:02d}-*model_states.pt")))

    def save_state_dict(self, save_dir: str, checkpoint_engine: CheckpointEngine, exclude_frozen_params: bool = False) -> None:
        """Writes the state dict of each module among this stage's layers."""
        from deepspeed.checkpoint.utils import clone_tensors_for_torch_save

        checkpoint_engine.makedirs(save_dir, exist_ok=True)
        for place in self._places_to_write():
            layer = self.forward_funcs[place]
            if not isinstance(layer, nn.Module):
                continue
            state = layer.state_dict()
            frozen = [name for name, param in layer.named_parameters() if not param.requires_grad]
            for name in frozen if exclude_frozen_params else ():
                del state[name]
            checkpoint_engine.save(clone_tensors_for_torch_save(state), self.ckpt_layer_path(save_dir, place))

    def _places_to_write(self) -> Iterable[int]:
        """Returns which layers this rank writes, of those that all data-parallel ranks have."""
        rank, size = self._grid.data_parallel_id, self._grid.data_parallel_size
        if not self.checkpoint_parallel_write_pipeline:
            return range(len(self.forward_funcs)) if rank == 0 else ()
        bounds = partition_uniform(len(self.forward_funcs), size)
        return range(bounds[rank], bounds[rank + 1])

    def load_state_dir(self, load_dir: str, checkpoint_engine: CheckpointEngine, strict: bool = True) -> None:
        """Reads what save_state_dict() wrote, with the same slices of layers."""
        slices = self._grid.get_slice_parallel_world_size()
        for place, layer in enumerate(self.forward_funcs):
            if not isinstance(layer, nn.Module):
                continue
            files = self.ckpt_layer_path_list(load_dir, place)
            if len(files) != slices:
                raise NotSupportedError(
                    f"load_state_dir(): layer {self._layer_indices[place]} has {len(files)} files in {os.fspath(load_dir)!r}, expected "
                    f"{slices}, one a slice of the model; files of another tensor parallelism cannot be joined or cut"
                )
            state = checkpoint_engine.load(files[self._grid.get_slice_parallel_rank()], map_location=self._device())
            layer.load_state_dict(state, strict=strict)
        self._synchronize_tied_weights()
