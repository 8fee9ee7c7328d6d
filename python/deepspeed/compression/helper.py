"""Gets and sets parts of a module by their dotted names."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from deepspeed._lazy import lazy

if TYPE_CHECKING:
    import torch


def recursive_getattr(model: torch.nn.Module, module_name: str) -> Any:
    """Returns the part of the model with a name such as "layers.0.mlp"."""
    return functools.reduce(getattr, module_name.split("."), model)


def recursive_setattr(model: torch.nn.Module, module_name: str, module: object) -> None:
    """Replaces the part of the model with a name such as "layers.0.mlp"."""
    parent, _, name = module_name.rpartition(".")
    setattr(recursive_getattr(model, parent) if parent else model, name, module)


if not TYPE_CHECKING:
    __getattr__ = lazy(__name__)
