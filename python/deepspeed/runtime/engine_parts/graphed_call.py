"""Prepares a Python forward for the core's graphs (cuda_graphs). Its tensors come in a list, everything else as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.utils import _pytree as pytree

from deepspeed._errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from deepspeed import _core

_PLAIN = (bool, int, float, str, bytes, torch.dtype, torch.device, type(None))


def run_graphed(
    scope: _core.Forward, run: Callable[[Sequence[Any], Mapping[str, Any]], Any], inputs: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Returns run(inputs, kwargs), which the scope's graphs may replay.

    Raises UsageError for values that cannot be searched for tensors.
    """
    leaves, spec = pytree.tree_flatten((inputs, dict(kwargs)))
    places = _places_of_tensors(leaves, "takes")
    rest = f"{spec} {[leaf for leaf in leaves if not isinstance(leaf, torch.Tensor)]}"

    def call(tensors: list[torch.Tensor]) -> tuple[list[torch.Tensor], Any]:
        given_inputs, given_kwargs = pytree.tree_unflatten(_filled(leaves, places, tensors), spec)
        made, made_spec = pytree.tree_flatten(run(given_inputs, given_kwargs))
        made_places = _places_of_tensors(made, "returns")
        frame = _filled(made, made_places, [None] * len(made_places))
        return [made[place] for place in made_places], (frame, made_places, made_spec)

    tensors, (frame, made_places, made_spec) = scope.run_graphed([leaves[place] for place in places], rest, call)
    return pytree.tree_unflatten(_filled(frame, made_places, tensors), made_spec)


def _places_of_tensors(leaves: Sequence[Any], does: str) -> list[int]:
    for leaf in leaves:
        if not isinstance(leaf, (torch.Tensor, *_PLAIN)):
            raise UsageError(
                f"cuda_graphs: forward() {does} a {type(leaf).__name__}, in which tensors cannot be found: use tensors, numbers, texts "
                "and containers of them (of a Transformers model, use_cache=False), or set cuda_graphs.enabled to false"
            )
    return [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]


def _filled(leaves: Sequence[Any], places: Sequence[int], values: Sequence[Any]) -> list[Any]:
    filled = list(leaves)
    for place, value in zip(places, values, strict=True):
        filled[place] = value
    return filled
