"""Adds the layer, loss_fn or recomputed region to errors that it raises."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextlib.contextmanager
def noting(place: Callable[[], str]) -> Iterator[None]:
    """Adds "This was in PLACE." to errors that are raised inside.

    place: a function that returns the text. Python 3.10 has no notes, so there the error's message is extended.
    """
    try:
        yield
    except Exception as error:
        note = f"This was in {place()}."
        if hasattr(error, "add_note"):
            error.add_note(note)
        elif error.args and isinstance(error.args[0], str):
            error.args = (f"{error.args[0]}\n{note}", *error.args[1:])
        raise


def shapes_of(value: object) -> str:
    """Describes tensors by shapes and dtypes, other values by their types."""
    values = value if isinstance(value, (tuple, list)) else (value,)
    texts = [f"{tuple(item.shape)} {item.dtype}" if isinstance(item, torch.Tensor) else type(item).__name__ for item in values]
    return ", ".join(texts)
