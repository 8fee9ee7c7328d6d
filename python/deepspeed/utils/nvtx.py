"""Marks functions for NVIDIA's profilers."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from deepspeed.accelerator import get_accelerator

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, ParamSpec, TypeVar

    P = ParamSpec("P")
    R = TypeVar("R")

enable_nvtx = True
DEEPSPEED_NVTX_DOMAIN = "DeepSpeed"


def is_compiling() -> bool:
    """Returns whether torch.compile is tracing the caller."""
    import torch

    return torch.compiler.is_compiling()


def instrument_w_nvtx(func: Callable[P, R]) -> Callable[P, R]:
    """Puts each call of the function into a range with its name."""

    @functools.wraps(func)
    def marked(*args: P.args, **kwargs: P.kwargs) -> R:
        if not enable_nvtx or is_compiling():
            return func(*args, **kwargs)
        device = get_accelerator()
        domain: dict[str, Any] = {"domain": DEEPSPEED_NVTX_DOMAIN} if getattr(device, "supports_nvtx_domain", False) else {}
        device.range_push(func.__qualname__, **domain)
        result = func(*args, **kwargs)
        device.range_pop(**domain)
        return result

    return marked
