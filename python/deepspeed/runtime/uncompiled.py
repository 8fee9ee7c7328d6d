"""Keeps torch.compile and compiled autograd out of the engine's work.

It is imported only if torch._dynamo is loaded: that takes most of a second, and few scripts use it. A module that torch.compile traces
may import this one; its graph ends at a call to a function here.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import torch
from torch._dynamo import compiled_autograd

from deepspeed.utils.logging import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any


@torch.compiler.disable  # type: ignore[untyped-decorator]  # of torch
def run_untraced(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Returns function(*args, **kwargs) outside of its caller's graph. What is compiled inside it stays compiled."""
    return function(*args, **kwargs)


@torch.compiler.disable  # type: ignore[untyped-decorator]  # of torch
def run_eagerly(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Returns function(*args, **kwargs) with nothing compiled inside.

    Compiled kernels read memory without the dispatcher, which gathers partitioned parameters.
    """
    with torch.compiler.set_stance("force_eager"):
        return function(*args, **kwargs)


@torch.compiler.disable  # type: ignore[untyped-decorator]  # of torch
def leave_compiled_autograd() -> None:
    """Turns compiled autograd off until its context ends. It cannot trace what the engine does in backward."""
    torch._C._dynamo.compiled_autograd.set_autograd_compiler(None, False)
    compiled_autograd.compiled_autograd_enabled = False
    warn_of_compiled_autograd()


@functools.lru_cache(maxsize=1)
def warn_of_compiled_autograd() -> None:
    """Warns once that backward is not compiled."""
    logger.warning("compiled autograd is off: an engine's backward, which reduces gradients as they come, runs eagerly")
