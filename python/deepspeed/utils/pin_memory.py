"""Refuses page-locked memory by mlock. Accelerators provide torch's pinned memory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from deepspeed._errors import NotSupportedError, not_supported_class

if TYPE_CHECKING:
    from typing import Any

_WAY_OUT = "unset DS_PIN_MEMORY_BACKEND, and get_accelerator().pin_memory() pins by torch"

_shared_native_pins = None  # what get_native_pinned_memory() would return: never made

NativePinnedMemory = not_supported_class("deepspeed.utils.pin_memory.NativePinnedMemory", _WAY_OUT)


def get_native_pinned_memory() -> Any:
    """Raises NotSupportedError."""
    return NativePinnedMemory()


def get_active_native_pinned_memory() -> None:
    """Returns None, since torch pins. Raises NotSupportedError if DS_PIN_MEMORY_BACKEND is "native"."""
    if os.environ.get("DS_PIN_MEMORY_BACKEND", "torch").strip().lower() == "native":
        raise NotSupportedError(f"DS_PIN_MEMORY_BACKEND=native is not supported: {_WAY_OUT}")
