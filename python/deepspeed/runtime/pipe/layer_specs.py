"""Describes a pipeline's layers, which are built only on the ranks that need them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.distributed as dist
from torch import nn

from deepspeed.runtime.error_place import noting
from deepspeed.runtime.utils import call_to_str
from deepspeed.utils.logging import logger

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class LayerSpec:
    """Holds a layer's class and arguments. build() makes it, only on the ranks of its stage."""

    def __init__(self, typename: type[nn.Module], *module_args: Any, **module_kwargs: Any) -> None:
        self.typename = typename
        self.module_args = module_args
        self.module_kwargs = module_kwargs
        if not issubclass(typename, nn.Module):
            raise RuntimeError("LayerSpec only supports torch.nn.Module types.")
        self.global_rank = dist.get_rank() if dist.is_initialized() else -1

    def __repr__(self) -> str:
        return call_to_str(self.typename.__name__, *self.module_args, **self.module_kwargs)

    def build(self, log: bool = False) -> nn.Module:
        """Makes the layer."""
        if log:
            logger.info(f"RANK={self.global_rank} building {self!r}")
        return self.typename(*self.module_args, **self.module_kwargs)


class TiedLayerSpec(LayerSpec):
    """Describes a layer that shares its module with all layers of the same key.

    They may be on other stages. forward_fn(module, inputs): its forward; by default the module's own. tied_weight_attr: names of the
    module's parameters that the stages keep equal, with dots for submodules.
    """

    def __init__(
        self,
        key: str,
        typename: type[nn.Module],
        *module_args: Any,
        forward_fn: Callable[..., Any] | None = None,
        tied_weight_attr: str | list[str] = ["weight"],
        **module_kwargs: Any,
    ) -> None:
        super().__init__(typename, *module_args, **module_kwargs)
        self.key = key
        self.forward_fn = forward_fn
        self.tied_weight_attr = [tied_weight_attr] if isinstance(tied_weight_attr, str) else tied_weight_attr


def layer_name(layer: object) -> str:
    """Returns the name of a layer's class or of a function; "" if it has none."""
    if isinstance(layer, LayerSpec):
        return layer.typename.__name__
    if isinstance(layer, nn.Module):
        return type(layer).__name__
    return getattr(layer, "__name__", "")


def describe_layer(index: int, layer: object) -> str:
    """Describes a pipeline's layer for messages."""
    return f"layer {index} ({layer_name(layer)})"


def build_layer(index: int, spec: LayerSpec) -> nn.Module:
    """Builds a described layer. Errors of its constructor name the layer."""
    with noting(lambda: f"the constructor of {describe_layer(index, spec)}"):
        return spec.build()
