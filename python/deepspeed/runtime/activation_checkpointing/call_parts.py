"""Separates the tensors of a call from its other arguments and results."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import torch
from torch.utils import _pytree as pytree

from deepspeed.runtime.error_place import noting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any


class CallParts:
    """Takes the tensors out of a call's arguments, and runs the call with other tensors instead."""

    def __init__(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], name: str) -> None:
        self._function, self._name = function, name
        values, self._form = pytree.tree_flatten((args, kwargs))
        self._inputs: list[torch.Tensor] = [value for value in values if isinstance(value, torch.Tensor)]
        self._rest = [_PLACE if isinstance(value, torch.Tensor) else value for value in values]
        self._first: tuple[list[Any], pytree.TreeSpec] | None = None

    def take_inputs(self) -> list[torch.Tensor]:
        """Returns the tensors, and keeps no reference to them."""
        inputs, self._inputs = self._inputs, []
        return inputs

    def run(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Returns the tensors of the function's result.

        result_with() needs the first run's result. Errors of later runs say that they are a recomputation.
        """
        places = iter(tensors)
        args, kwargs = pytree.tree_unflatten([next(places) if value is _PLACE else value for value in self._rest], self._form)
        with contextlib.nullcontext() if self._first is None else noting(lambda: f"the recomputation of {self._name}"):
            result = self._function(*args, **kwargs)
        values, form = pytree.tree_flatten(tuple(result) if isinstance(result, list) else result)
        outputs = [value for value in values if isinstance(value, torch.Tensor)]
        if self._first is None:
            self._first = [_PLACE if isinstance(value, torch.Tensor) else value for value in values], form
        return outputs

    def result_with(self, outputs: Iterable[torch.Tensor]) -> Any:
        """Returns the first run's result with these tensors in place of its own."""
        places = iter(outputs)
        assert self._first is not None
        values, form = self._first
        return pytree.tree_unflatten([next(places) if value is _PLACE else value for value in values], form)


_PLACE = object()
