"""Provides small helpers around torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from torch.utils.hooks import RemovableHandle


def required_torch_version(min_version: object = None, max_version: object = None) -> bool:
    """Returns whether torch's version (major.minor) is in the closed range. At least one bound must be given."""
    assert min_version or max_version, "Must provide a min_version or max_version argument"
    found = _numbers(torch.__version__)
    if min_version and found < _numbers(min_version):
        return False
    return not (max_version and found > _numbers(max_version))


def _numbers(version: object) -> tuple[int, ...]:
    parts = str(version).split("+")[0].split(".")
    return tuple(int("".join(c for c in part if c.isdigit()) or 0) for part in parts[:2])


def is_functorch_transforming() -> bool:
    """Returns whether a transform of torch.func is running."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def register_grad_hook(param: torch.Tensor, hook: Callable[[torch.Tensor], object]) -> RemovableHandle:
    """Calls hook(param) whenever backward has added to its gradient. Returns the handle."""
    handle: RemovableHandle = param.register_post_accumulate_grad_hook(lambda held: hook(held))
    return handle


def jit_script_compat(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function compiled by torch.compile."""
    return torch.compile(fn)
