"""What keeps torch.compile and compiled autograd out of the engine's work.

Is imported where torch._dynamo is loaded: it takes most of a second, and few scripts use it. What torch.compile traces may
import this module, and ends its graph where it calls a function of it.
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
    """Returns function(*args, **kwargs), which is no part of its caller's graph. What is compiled in it stays so."""
    return function(*args, **kwargs)


@torch.compiler.disable  # type: ignore[untyped-decorator]  # of torch
def run_eagerly(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Returns function(*args, **kwargs), in which nothing is compiled.

    Compiled kernels read memory past the dispatcher, which gathers partitioned parameters.
    """
    with torch.compiler.set_stance("force_eager"):
        return function(*args, **kwargs)


@torch.compiler.disable  # type: ignore[untyped-decorator]  # of torch
def leave_compiled_autograd() -> None:
    """Turns compiled autograd off until its context ends: it cannot trace what the engine does in backward."""
    torch._C._dynamo.compiled_autograd.set_autograd_compiler(None, False)
    compiled_autograd.compiled_autograd_enabled = False
    warn_of_compiled_autograd()


@functools.lru_cache(maxsize=1)
def warn_of_compiled_autograd() -> None:
    """Says once that backward is not compiled."""
    logger.warning("compiled autograd is off: an engine's backward, which reduces gradients as they come, runs eagerly")
