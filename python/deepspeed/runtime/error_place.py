"""What a layer, a loss_fn or a region that is recomputed raises says which one it was."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextlib.contextmanager
def noting(place: Callable[[], str]) -> Iterator[None]:
    """Adds "This was in PLACE." to what is raised inside; `place` is called then. Python 3.10 has no notes: there the text is extended."""
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
