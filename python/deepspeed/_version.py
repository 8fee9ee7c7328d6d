"""The package's version: DeepSpeed's whose names it has, and that of the engine."""

from __future__ import annotations

import torch

from deepspeed._build import TORCH, VERSION  # TORCH: the minor version that _core was built with

__version__ = VERSION
__version_major__, __version_minor__, __version_patch__ = (int(part) for part in __version__.partition("+")[0].split("."))
git_hash = "unknown"
git_branch = "unknown"


def check_torch() -> None:
    """Raises ImportError where torch is another minor version than the one of the build."""
    found = torch.__version__
    if not found.startswith(TORCH + "."):
        raise ImportError(
            f"deepspeed {__version__} was built for torch {TORCH}, and this is torch {found}: install torch=={TORCH}.*, or "
            "build the package anew with this torch (pip install .)"
        )
