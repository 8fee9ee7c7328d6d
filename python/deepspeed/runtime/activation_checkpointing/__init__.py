"""Provides activation checkpointing."""

from typing import TYPE_CHECKING

from deepspeed._lazy import lazy

if TYPE_CHECKING:
    from deepspeed.runtime.activation_checkpointing import checkpointing as checkpointing
else:
    __getattr__ = lazy(__name__, submodules=("checkpointing",))
