"""Chooses the layers of each stage."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from torch import nn

from deepspeed._errors import NotSupportedError, UsageError
from deepspeed.runtime.partitions import partition_balanced, partition_uniform
from deepspeed.runtime.pipe.layer_specs import LayerSpec, build_layer, layer_name

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


def partition_layers(layers: Sequence[Any], num_parts: int, method: str) -> list[int]:
    """Returns num_parts + 1 bounds. method: "uniform", "parameters" or "type:REGEX"; case does not matter."""
    if len(layers) < num_parts:
        raise UsageError(f"there are {len(layers)} layers for {num_parts} stages, expected one or more for each: take fewer stages")
    kind = method.lower()
    if kind == "uniform":
        return partition_uniform(len(layers), num_parts)
    if kind == "parameters":
        return partition_balanced(count_parameters(layers), num_parts)
    if kind.startswith("type:"):
        found = find_layers(layers, method.split(":", 1)[1])
        return partition_balanced([float(index in found) for index in range(len(layers))], num_parts)
    raise NotSupportedError(
        f"Partitioning method {method} not implemented. partition_method is one of 'uniform', 'parameters' and 'type:REGEX'"
    )


def count_parameters(layers: Sequence[Any]) -> list[int]:
    """Returns how many trained elements each layer has. Described layers are built one at a time, and freed."""
    counts = [0] * len(layers)
    for index, layer in enumerate(layers):
        module = build_layer(index, layer) if isinstance(layer, LayerSpec) else layer
        if isinstance(module, nn.Module):
            counts[index] = sum(param.numel() for param in module.parameters() if param.requires_grad)
    return counts


def find_layers(layers: Sequence[Any], pattern: str) -> list[int]:
    """Returns the indices of layers whose class name matches, regardless of case."""
    regex = re.compile(pattern, re.IGNORECASE)
    found = [index for index, layer in enumerate(layers) if layer_name(layer) and regex.search(layer_name(layer))]
    if not found:
        raise RuntimeError(f"Partitioning '{pattern}' found no valid layers to partition.")
    return found
