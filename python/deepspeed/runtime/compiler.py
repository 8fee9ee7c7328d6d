"""Provides torch.compiler under DeepSpeed's names."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def is_compile_supported() -> bool:
    return hasattr(torch, "compiler") and hasattr(torch.nn.Module, "compile")


def disable(func: Callable[..., Any]) -> Any:
    """Excludes a function from torch.compile."""
    return torch.compiler.disable(func)


def leave_compiled_autograd() -> None:
    """Turns compiled autograd off until its context ends, with a warning, before the engine uses autograd."""
    loaded = sys.modules.get("torch._dynamo.compiled_autograd")
    if loaded is not None and loaded.compiled_autograd_enabled:
        from deepspeed.runtime.uncompiled import leave_compiled_autograd as leave

        leave()


def is_compiling() -> bool:
    return torch.compiler.is_compiling()
