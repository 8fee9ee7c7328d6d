"""Refuses a script's own loss.backward() without ZeRO, as DeepSpeed does. There is no place to reduce gradients then."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from deepspeed import _core
from deepspeed._errors import UsageError
from deepspeed.runtime.backward.output_hooks import count_used_parameters_in_backward, register_output_backward_hooks
from deepspeed.utils.torch import is_functorch_transforming

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import torch

_running = 0  # number of backwards that engines have begun


@contextlib.contextmanager
def by_engine() -> Iterator[None]:
    """Marks a backward within its scope as begun by an engine. One loss may pass through several engines."""
    global _running
    _running += 1
    try:
        yield
    finally:
        _running -= 1


def refuse_direct(outputs: object, params: Iterable[torch.Tensor]) -> None:
    """Makes a script's backward through the outputs an error if it adds to a parameter."""

    def check() -> None:
        if _running or is_functorch_transforming() or _core.is_derivative() or count_used_parameters_in_backward(params) == 0:
            return
        raise UsageError(
            "Direct calls to tensor.backward() are not supported at zero_optimization.stage 0: call engine.backward(loss), or set stage 1"
        )

    register_output_backward_hooks(outputs, check)
