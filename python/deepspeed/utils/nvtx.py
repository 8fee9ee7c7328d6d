"""Marks of functions for NVIDIA's profilers."""

import functools

from deepspeed.accelerator import get_accelerator

enable_nvtx = True
DEEPSPEED_NVTX_DOMAIN = "DeepSpeed"


def is_compiling():
    """Returns whether torch.compile traces the caller."""
    import torch

    return torch.compiler.is_compiling()


def instrument_w_nvtx(func):
    """Puts each call of the function into a range of its name."""

    @functools.wraps(func)
    def marked(*args, **kwargs):
        if not enable_nvtx or is_compiling():
            return func(*args, **kwargs)
        device = get_accelerator()
        domain = {"domain": DEEPSPEED_NVTX_DOMAIN} if getattr(device, "supports_nvtx_domain", False) else {}
        device.range_push(func.__qualname__, **domain)
        result = func(*args, **kwargs)
        device.range_pop(**domain)
        return result

    return marked
