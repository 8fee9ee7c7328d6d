"""torch.compiler under DeepSpeed's names."""

import torch


def is_compile_supported() -> bool:
    return hasattr(torch, "compiler") and hasattr(torch.nn.Module, "compile")


def disable(func):
    """Keeps torch.compile out of a function."""
    return torch.compiler.disable(func)


def is_compiling() -> bool:
    return torch.compiler.is_compiling()
