from __future__ import annotations

import os
from typing import TYPE_CHECKING

from deepspeed import _core

if TYPE_CHECKING:
    from deepspeed.accelerator.abstract_accelerator import DeepSpeedAccelerator

_accelerator = None


def is_current_accelerator_supported() -> bool:
    return get_accelerator()._name in ("cpu", "cuda")


def get_accelerator() -> DeepSpeedAccelerator:
    """Returns the accelerator of this process.

    It is the one that DS_ACCELERATOR names, otherwise a GPU if the engine finds one, otherwise the CPU. Raises ValueError if
    DS_ACCELERATOR is neither cpu nor cuda.
    """
    global _accelerator
    if _accelerator is None:
        _accelerator = _make(os.environ.get("DS_ACCELERATOR") or ("cuda" if _core.num_cuda_devices() > 0 else "cpu"))
    return _accelerator


def set_accelerator(accel_obj: DeepSpeedAccelerator) -> DeepSpeedAccelerator:
    """Sets another accelerator for this process."""
    global _accelerator
    _accelerator = accel_obj
    return _accelerator


def _make(name: str) -> DeepSpeedAccelerator:
    if name == "cpu":
        from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator

        return CPU_Accelerator()
    if name == "cuda":
        from deepspeed.accelerator.cuda_accelerator import CUDA_Accelerator

        return CUDA_Accelerator()
    raise ValueError(f"DS_ACCELERATOR is {name!r}, expected cpu or cuda")
