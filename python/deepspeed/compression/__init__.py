"""Provides compression's helpers that access submodules by name. Compression itself does not exist."""

from typing import TYPE_CHECKING

from deepspeed._lazy import lazy

if TYPE_CHECKING:
    from deepspeed.compression import helper as helper
else:
    __getattr__ = lazy(__name__, submodules=("helper",))
