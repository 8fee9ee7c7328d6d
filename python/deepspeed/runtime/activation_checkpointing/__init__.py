"""Activation checkpointing."""

from deepspeed._lazy import lazy

__getattr__ = lazy(__name__, submodules=("checkpointing",))
