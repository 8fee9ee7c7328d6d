"""Tensors on a disk: the core moves them."""

from deepspeed.runtime.swap_tensor.utils import MIN_SWAPPABLE_BYTES

__all__ = ["MIN_SWAPPABLE_BYTES"]
