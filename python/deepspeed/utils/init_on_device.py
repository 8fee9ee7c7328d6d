"""Constructs modules on another device, in another dtype."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from typing import Literal

    from typing_extensions import Self


class OnDevice:
    """Makes the tensors of its scope on `device` ("meta": without memory) in `dtype`."""

    def __init__(self, dtype: torch.dtype | None, device: str = "meta", enabled: bool = True) -> None:
        self.dtype = dtype
        self.device = device
        self.enabled = enabled
        self._scopes = contextlib.ExitStack()
        self._old_dtype: torch.dtype | None = None

    def __enter__(self) -> Self:
        if not self.enabled:
            return self
        self._scopes = contextlib.ExitStack()
        self._scopes.enter_context(torch.device(self.device))
        if self.dtype is not None and self.dtype.is_floating_point:
            self._old_dtype = torch.get_default_dtype()
            torch.set_default_dtype(self.dtype)
        return self

    def __exit__(self, *_: object) -> Literal[False]:
        if not self.enabled:
            return False
        if self._old_dtype is not None:
            torch.set_default_dtype(self._old_dtype)
        self._scopes.close()
        return False
