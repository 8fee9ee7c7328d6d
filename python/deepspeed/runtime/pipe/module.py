"""Defines a model as a list of layers, of which a rank has those of its stage."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import nn

from deepspeed import _world
from deepspeed._errors import DeepSpeedError
from deepspeed.runtime.activation_checkpointing import checkpointing
from deepspeed.runtime.error_place import noting, shapes_of
from deepspeed.runtime.pipe.layer_files import LayerFiles
from deepspeed.runtime.pipe.layer_specs import (
    LayerSpec as LayerSpec,
    TiedLayerSpec as TiedLayerSpec,
    build_layer,
    describe_layer,
    layer_name,
)
from deepspeed.runtime.pipe.partition import partition_layers
from deepspeed.runtime.pipe.recomputation import RecomputedBlocks
from deepspeed.runtime.pipe.ties import make_tied_comms
from deepspeed.runtime.pipe.topology import PipeDataParallelTopology, PipelineParallelGrid
from deepspeed.runtime.utils import set_random_seed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from deepspeed.runtime.pipe.topology import ProcessTopology


class PipelineError(DeepSpeedError):
    """Says that a pipeline was used incorrectly."""


class PipelineModule(RecomputedBlocks, LayerFiles, nn.Module):
    """Runs layers one after the other, as a pipeline of stages. Collective.

    layers: modules, LayerSpecs, TiedLayerSpecs and functions; each takes the output of the one before. The module's parameters are those
    of this rank's stage. A parameter of layer i is named "i.name", one of a tied layer "tied_modules.KEY.name". loss_fn(outputs, labels)
    runs on the last stage. seed_layers: layer i is built under the seed base_seed + i, set by seed_fn(seed).
    activation_checkpoint_interval: recomputes blocks of this many layers, keeping only block inputs; 0 keeps everything. model_chunks:
    parts of the model on each stage, for the schedule "interleaved". All ranks must pass the same arguments.
    """

    def __init__(
        self,
        layers: Iterable[Any],
        num_stages: int | None = None,
        topology: ProcessTopology | None = None,
        loss_fn: Callable[..., Any] | None = None,
        seed_layers: bool = False,
        seed_fn: Callable[[int], object] | None = None,
        base_seed: int = 1234,
        partition_method: str = "parameters",
        activation_checkpoint_interval: int = 0,
        activation_checkpoint_func: Callable[..., Any] = checkpointing.checkpoint,
        checkpointable_layers: list[str] | None = None,
        dynamic_shape: bool = False,
        *,
        model_chunks: int = 1,
    ) -> None:
        super().__init__()
        if num_stages is None and topology is None:
            raise RuntimeError("must provide num_stages or topology")
        if checkpointable_layers is not None:
            assert isinstance(checkpointable_layers, list), "param `checkpointable_layers` must be type of list."
        self.micro_offset = 0  # number of the chunk's forward, from which seed_layers derives seeds
        self._num_forwards = [0] * model_chunks  # so far; for any schedule they count a chunk's micro batches
        self.loss_fn = loss_fn
        self.checkpointable_layers = checkpointable_layers
        self.seed_layers, self.seed_fn, self.base_seed = seed_layers, seed_fn, base_seed
        self.dynamic_shape = dynamic_shape
        self._place(num_stages, topology)
        self._layer_specs = list(layers)
        self._num_layers = len(self._layer_specs)
        self._model_chunks = model_chunks
        self._partition_layers(method=partition_method)
        self.activation_checkpoint_interval = activation_checkpoint_interval
        self.activation_checkpoint_func = activation_checkpoint_func
        self.is_checkpointable_results: list[bool] = []
        self.is_checkpointable_results_interval: int | None = None
        self._build()
        self.to(self._device())
        self.tied_comms = make_tied_comms(self)
        self._synchronize_tied_weights()

    # --- how it is put together ---

    def _place(self, num_stages: int | None, topology: ProcessTopology | None) -> None:
        """Finds this rank's stage, and makes the topology's process groups."""
        _world.ensure_world()
        self.world_group = dist.group.WORLD
        self.global_rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self.local_rank = int(os.environ.get("LOCAL_RANK", 0))
        if topology is None:
            assert num_stages is not None
            if self.world_size % num_stages != 0:
                raise RuntimeError(f"num_stages ({num_stages}) must divide distributed world size ({self.world_size})")
            topology = PipeDataParallelTopology(num_pp=num_stages, num_dp=self.world_size // num_stages)
        self._topo = topology
        self.num_stages = topology.get_dim("pipe")
        self._grid = PipelineParallelGrid(topology=topology)
        self.stage_id = self._grid.get_stage_id()

    def _device(self) -> str:
        from deepspeed.accelerator import get_accelerator

        return get_accelerator().device_name(self.local_rank)

    def _partition_layers(self, method: str = "uniform") -> None:
        self.parts = partition_layers(self._layer_specs, self.num_stages * self._model_chunks, method)
        self._set_bounds(start=self.parts[self.stage_id], stop=self.parts[self.stage_id + 1])
        if self.global_rank == 0:
            self._list_stages()

    def _list_stages(self) -> None:
        """Prints the layers of each stage and chunk, as DeepSpeed does."""
        for part, (begin, end) in enumerate(zip(self.parts, self.parts[1:])):
            chunk = f" chunk={part // self.num_stages}" if self._model_chunks > 1 else ""
            print(f"stage={part % self.num_stages}{chunk} layers={end - begin}")
            for index, layer in enumerate(self._layer_specs[begin:end], begin):
                print(f"    {index:2d}: {layer_name(layer) or layer}")
        if self.loss_fn is not None:
            print(f"  loss: {getattr(self.loss_fn, '__name__', type(self.loss_fn).__name__)}", flush=True)

    def _set_bounds(self, start: int | None = None, stop: int | None = None) -> None:
        """Sets this rank's layers: from `start` to before `stop`; with several chunks the first one's."""
        self._local_start = start
        self._local_stop = stop

    def _build(self) -> None:
        self.forward_funcs: list[Any] = []
        self.fwd_map: dict[str, int] = {}
        self.tied_modules = nn.ModuleDict()
        self.tied_weight_attrs: dict[str, list[str]] = {}
        self._chunks: list[tuple[int, int]] = []  # begin and end in forward_funcs, for each chunk
        self._layer_indices: list[int] = []  # for each of forward_funcs
        for bounds in self._chunk_bounds():
            begin = len(self.forward_funcs)
            for index in range(*bounds):
                self._build_layer(index, self._layer_specs[index])
            self._chunks.append((begin, len(self.forward_funcs)))
        self._active_chunk = 0
        for param in self.parameters():
            param.__dict__["ds_pipe_replicated"] = False

    def _chunk_bounds(self) -> list[tuple[int, int]]:
        if self._model_chunks == 1:
            return [(self._local_start or 0, self._num_layers if self._local_stop is None else self._local_stop)]
        first = [chunk * self.num_stages + self.stage_id for chunk in range(self._model_chunks)]
        return [(self.parts[part], self.parts[part + 1]) for part in first]

    def _build_layer(self, index: int, layer: Any) -> None:
        if self.seed_layers:
            self._seed(self.base_seed + index)
        if isinstance(layer, PipelineModule):
            raise NotImplementedError("RECURSIVE BUILD NOT YET IMPLEMENTED")
        self._layer_indices.append(index)
        if isinstance(layer, TiedLayerSpec):
            self.forward_funcs.append(self._tied_function(index, layer))
            return
        if isinstance(layer, LayerSpec):
            layer = build_layer(index, layer)
        if isinstance(layer, nn.Module):
            self.fwd_map[str(index)] = len(self.forward_funcs)
            self.add_module(str(index), layer)
        self.forward_funcs.append(layer)

    def _tied_function(self, index: int, layer: TiedLayerSpec) -> Callable[..., Any]:
        if layer.key not in self.tied_modules:
            self.tied_modules[layer.key] = build_layer(index, layer)
            self.tied_weight_attrs[layer.key] = layer.tied_weight_attr
        module = self.tied_modules[layer.key]
        return module if layer.forward_fn is None else functools.partial(layer.forward_fn, module)

    def _seed(self, seed: int) -> None:
        (self.seed_fn or set_random_seed)(seed)

    # --- running ---

    def forward(self, forward_input: Any) -> Any:
        self._num_forwards[self._active_chunk] += 1
        self.micro_offset = self._num_forwards[self._active_chunk]
        begin, end = self._chunks[self._active_chunk]
        if self.activation_checkpoint_interval == 0:
            return self._function(begin, end)(forward_input)
        self._precompute_checkpointable_values()
        value = forward_input
        for (first, last), is_recomputed in zip(self._blocks(), self.is_checkpointable_results):
            if not begin <= first < end:
                continue
            inputs = value if isinstance(value, tuple) else (value,)
            function = self._function(first, last)
            value = self.activation_checkpoint_func(function, *inputs) if is_recomputed else function(*inputs)
        return value

    def _function(self, begin: int, end: int) -> Callable[..., Any]:
        """Returns the layers from `begin` to before `end` as one function. Backward uses the seeds of this forward as well."""
        offset = self.micro_offset + 1

        def run(*inputs: Any) -> Any:
            value = inputs[0] if len(inputs) == 1 else inputs
            for position in range(begin, end):
                self.curr_layer = self._layer_indices[position]
                if self.seed_layers:
                    self._seed(self.base_seed * offset + self.curr_layer)
                value = self._run_layer(position, value)
            return value

        return run

    def _run_layer(self, position: int, value: Any) -> Any:
        with noting(lambda: f"{self._place_of(self.curr_layer)}, which was given {shapes_of(value)}"):
            return self.forward_funcs[position](value)

    def _place_of(self, index: int) -> str:
        return f"{self._describe_layer(index)} of stage {self.stage_id} of {self.num_stages}"

    def _describe_layer(self, index: int) -> str:
        return describe_layer(index, self._layer_specs[index])

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compiles each layer by torch.compile."""
        for position, layer in enumerate(self.forward_funcs):
            if isinstance(layer, nn.Module):
                layer.compile(*args, **kwargs)
            else:
                self.forward_funcs[position] = torch.compile(layer, *args, **kwargs)

    def get_additional_losses(self) -> dict[str, torch.Tensor] | None:
        """Returns a dict of losses to report with the last micro batch's, or None. Models override it."""
        return None

    # --- what it is made of ---

    def partitions(self) -> list[int]:
        """Returns the bounds of the stages' layers."""
        return self.parts

    def stage_owner(self, layer_idx: int) -> int:
        """Returns the stage that has a layer."""
        assert 0 <= layer_idx < self._num_layers
        part = next(part for part in range(len(self.parts) - 1) if self.parts[part] <= layer_idx < self.parts[part + 1])
        return part % self.num_stages

    def topology(self) -> ProcessTopology:
        return self._topo

    def mpu(self) -> PipelineParallelGrid:
        return self._grid

    def num_pipeline_stages(self) -> int:
        return self._topo.get_dim("pipe")
