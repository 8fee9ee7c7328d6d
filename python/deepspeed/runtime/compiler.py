"""torch.compiler under DeepSpeed's names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def is_compile_supported() -> bool:
    return hasattr(torch, "compiler") and hasattr(torch.nn.Module, "compile")


def disable(func: Callable[..., Any]) -> Any:
    """Keeps torch.compile out of a function."""
    return torch.compiler.disable(func)


def is_compiling() -> bool:
    return torch.compiler.is_compiling()
