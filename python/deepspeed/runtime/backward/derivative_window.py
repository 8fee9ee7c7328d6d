"""Gives derivatives of torch.func access to partitioned parameters. They run after the module's call has ended."""

from __future__ import annotations

import torch

from deepspeed import _core
from deepspeed.runtime.backward.output_hooks import register_output_backward_hooks
from deepspeed.utils.torch import is_functorch_transforming


def open_in_derivative(core: _core.TrainingEngine | None, output: object) -> None:
    """Lets a derivative of the outputs read the engine's parameters, if a transform computes one."""
    if core is None or not is_functorch_transforming():
        return

    def begin() -> None:
        window = _core.Access(core)
        torch.autograd.Variable._execution_engine.queue_callback(window.close)

    register_output_backward_hooks(output, begin)
