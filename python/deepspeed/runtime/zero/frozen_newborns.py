"""Finds parameters that are frozen from the start. The core cannot tell them from other tensors, so modules report them."""

from __future__ import annotations

import threading

import torch
from torch.nn.modules.module import register_module_parameter_registration_hook

from deepspeed import _core


class FrozenNewborns:
    """Records the frozen parameters that this thread's modules register, until take()."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._params = torch.utils.weak.WeakIdKeyDictionary()  # in the order of registration, which is equal on all ranks
        self._hook = register_module_parameter_registration_hook(self._note)

    def _note(self, module: torch.nn.Module, name: str, param: torch.nn.Parameter | None) -> None:
        if param is not None and not param.requires_grad and threading.get_ident() == self._thread:
            self._params[param] = f"{name} of {type(module).__name__}"

    def take(self) -> list[tuple[str, torch.Tensor]]:
        """Stops recording. Returns (name, parameter) of those that are still whole and frozen."""
        self._hook.remove()
        return [(name, param) for param, name in self._params.items() if _is_whole_and_frozen(param)]


def _is_whole_and_frozen(param: torch.Tensor) -> bool:
    takes_values = param.dtype in (torch.float32, torch.float16, torch.bfloat16) and param.numel() > 0 and not param.is_meta
    return takes_values and not param.requires_grad and not _core.is_partitioned(param)
