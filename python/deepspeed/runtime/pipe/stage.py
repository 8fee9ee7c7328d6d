"""Lets the core drive a PipelineModule's stage: functions over lists of tensors."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.utils import _pytree as pytree

from deepspeed import _model
from deepspeed._errors import UsageError
from deepspeed.runtime.activation_checkpointing import checkpointing
from deepspeed.runtime.error_place import noting, shapes_of
from deepspeed.runtime.pipe import module as pipe_module
from deepspeed.runtime.pipe.layer_specs import TiedLayerSpec, layer_name
from deepspeed.runtime.pipe.tensor_lists import from_list, to_list
from deepspeed.utils.logging import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from deepspeed.runtime.pipe.module import PipelineModule


class Stage:
    """Runs the layers and the loss, and reads the micro batches.

    Labels and the last layer's outputs may be any objects, so they stay here; the core only gets tensors. Losses are computed in the
    order of the micro batches.
    """

    def __init__(self, module: PipelineModule) -> None:
        self._module = module
        self._labels: collections.deque[Any] = collections.deque()  # for the micro batches whose loss is still to come
        self._output: Any = None  # of the last micro batch, until its loss
        self._told_of_parts = False
        self.device: torch.device | None = None
        self.casts_inputs = False
        self.keeps_outputs = False
        self.outputs: list[Any] = []  # of the micro batches, if they are kept

    def describe(self) -> dict[str, Any]:
        """Returns the stage argument of _core.make_pipeline_engine()."""
        module = self._module
        return dict(
            model=_model.describe(module),
            layers=[self._layer(index, layer) for index, layer in enumerate(module._layer_specs)],
            parts=module.parts,
            topology=module.topology()._core,
            model_chunks=module._model_chunks,
            dynamic_shape=module.dynamic_shape,
            forward=self.forward,
            loss=self.loss,
            additional_losses=self._additional_losses() if _has_additional_losses(module) else None,
        )

    def _layer(self, index: int, layer: Any) -> tuple[str, str | None, list[str], dict[str, Any] | None, bool]:
        """Returns (class, key, tied weights, model, whether it has a forward_fn) of a layer. The key is None unless the layer is tied."""
        module = self._module
        is_tied = isinstance(layer, TiedLayerSpec)
        built = None
        if index in module._layer_indices:
            built = module.tied_modules[layer.key] if is_tied else module.forward_funcs[module._layer_indices.index(index)]
        described = _model.describe(built) if isinstance(built, nn.Module) else None
        names = list(layer.tied_weight_attr) if is_tied else []
        has_forward_fn = is_tied and layer.forward_fn is not None
        return layer_name(layer) or str(layer), layer.key if is_tied else None, names, described, has_forward_fn

    def _additional_losses(self) -> Callable[[], dict[str, torch.Tensor]]:
        module = self._module
        return lambda: module.get_additional_losses() or {}

    # --- data ---

    def begin(self, keeps_outputs: bool = False) -> None:
        """Clears what an interrupted batch has left."""
        self._labels.clear()
        self._output = None
        self.keeps_outputs, self.outputs = keeps_outputs, []

    def reader(
        self, iterator: Iterator[Any] | None, batch_fn: Callable[[Any], Any] | None
    ) -> Callable[[], list[torch.Tensor | None] | None] | None:
        """Returns a function that reads a micro batch and returns its inputs.

        At the end it returns None. Returns None if this stage has no data.
        """
        grid = self._module.mpu()
        if not (grid.is_first_stage or grid.is_last_stage) or (iterator is None and batch_fn is None):
            return None

        def read() -> list[torch.Tensor | None] | None:
            try:
                batch: Any = next(iterator) if iterator is not None else None
            except StopIteration:
                return None
            if batch_fn is not None:
                batch = batch_fn(batch)
            self._tell_of_further_parts(batch)
            if grid.is_last_stage:
                self._labels.append(batch[1])
            return to_list(_as_tuple(batch[0]), "the input of a micro batch") if grid.is_first_stage else []

        return read

    def _tell_of_further_parts(self, batch: object) -> None:
        """Warns once about parts that no stage gets. DeepSpeed ignores them as well."""
        if self._told_of_parts or not isinstance(batch, (tuple, list)) or len(batch) <= 2:
            return
        self._told_of_parts = True
        if self._module.global_rank == 0:
            logger.warning(
                f"a micro batch has {len(batch)} parts, of which a pipeline takes the first two, inputs and labels: what else it has, "
                "such as a mask, goes into a tuple that is one of the two"
            )

    # --- running ---

    def forward(self, chunk: int, inputs: Sequence[torch.Tensor | None]) -> Sequence[torch.Tensor | None]:
        """Runs the layers of a chunk. They may change their inputs, which are copies."""
        module = self._module
        module._active_chunk = chunk
        value = from_list([None if tensor is None else tensor.clone() for tensor in self._marked(chunk, inputs)])
        if self.casts_inputs:
            value = pytree.tree_map_only(torch.Tensor, _to_half, value)
        output = module(value)
        if not (module.mpu().is_last_stage and chunk == module._model_chunks - 1):
            return to_list(output, f"what {self._last_layer(chunk)} gives")
        self._output = output
        if self.keeps_outputs:
            self.outputs.append(pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.detach(), output))
        return [leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, torch.Tensor)]

    def _marked(self, chunk: int, inputs: Sequence[torch.Tensor | None]) -> Sequence[torch.Tensor | None]:
        """Returns the inputs. For a reentrant recomputation the model's inputs require a gradient.

        Otherwise it would compute no gradients at all.
        """
        module = self._module
        if chunk == 0 and module.mpu().is_first_stage and is_reentrant(module) and torch.is_grad_enabled():
            return [tensor.detach().requires_grad_() if tensor is not None and tensor.is_floating_point() else tensor for tensor in inputs]
        return inputs

    def _last_layer(self, chunk: int) -> str:
        module = self._module
        return module._describe_layer(module._layer_indices[module._chunks[chunk][1] - 1])

    def loss(self) -> torch.Tensor:
        """Returns the loss of the last micro batch that forward() has run."""
        output, self._output = self._output, None
        labels = pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to(self.device), _as_tuple(self._labels.popleft()))
        loss_fn = self._module.loss_fn
        if loss_fn is None:
            loss = output
        else:
            with noting(lambda: _place_of_loss(output, labels)):
                loss = loss_fn(output, labels)
        if isinstance(loss, torch.Tensor) and loss.numel() == 1:
            return loss
        source = "loss_fn" if loss_fn is not None else "the last layer, beside no loss_fn,"
        shape = tuple(loss.shape) if isinstance(loss, torch.Tensor) else type(loss).__name__
        raise UsageError(f"{source} gives {shape}, expected a scalar; for outputs call eval_batch(compute_loss=False)")


def _place_of_loss(output: object, labels: object) -> str:
    return f"loss_fn of the PipelineModule, which was given the outputs {shapes_of(output)} and the labels {shapes_of(labels)}"


def is_reentrant(module: PipelineModule) -> bool:
    """Returns whether the module's function for recomputation may be reentrant."""
    return module.activation_checkpoint_interval > 0 and module.activation_checkpoint_func is not checkpointing.non_reentrant_checkpoint


def _has_additional_losses(module: PipelineModule) -> bool:
    own = getattr(module.get_additional_losses, "__func__", None)
    return own is not pipe_module.PipelineModule.get_additional_losses


def _as_tuple(value: object) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _to_half(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.half() if tensor.is_floating_point() else tensor
