"""Converts values between stages to the lists of tensors that the core sends.

A tensor is a list of one. A tuple is the list of its values; None means no tensor. A tuple of fewer than two values, or whose last value
is None, has an additional None at its end, to tell it from a tensor or a shorter tuple.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


def to_list(value: object, what: str) -> list[torch.Tensor | None]:
    """Returns the list for a tensor, or for a tuple or list of tensors. what: names the value in errors."""
    if isinstance(value, torch.Tensor):
        return [value]
    if not isinstance(value, (tuple, list)) or not all(item is None or isinstance(item, torch.Tensor) for item in value):
        raise TypeError(f"{what} is {_describe(value)}, expected a tensor or a tuple of tensors, which stages send to each other")
    tensors = list(value)
    return tensors + [None] if len(tensors) < 2 or tensors[-1] is None else tensors


def from_list(tensors: Sequence[torch.Tensor | None]) -> Any:
    """Returns the tensor or tuple that a list stands for."""
    if len(tensors) == 1 and tensors[0] is not None:
        return tensors[0]
    return tuple(tensors[:-1] if tensors[-1] is None else tensors)


def _describe(value: object) -> str:
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of ({', '.join(type(item).__name__ for item in value)})"
    return f"of the type {type(value).__name__}"
