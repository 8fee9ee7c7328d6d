"""Provides helpers for tensors on a disk, which the core moves."""

from deepspeed.runtime.swap_tensor.utils import MIN_SWAPPABLE_BYTES

__all__ = ["MIN_SWAPPABLE_BYTES"]
