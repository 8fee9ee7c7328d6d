import os

from deepspeed import _core

_accelerator = None


def is_current_accelerator_supported():
    return get_accelerator()._name in ("cpu", "cuda")


def get_accelerator():
    """Returns the accelerator of this process: what DS_ACCELERATOR says, else a GPU where the engine sees one, else the CPU."""
    global _accelerator
    if _accelerator is None:
        _accelerator = _make(os.environ.get("DS_ACCELERATOR") or ("cuda" if _core.num_cuda_devices() > 0 else "cpu"))
    return _accelerator


def set_accelerator(accel_obj):
    """Chooses another accelerator for this process."""
    global _accelerator
    _accelerator = accel_obj
    return _accelerator


def _make(name):
    if name == "cpu":
        from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator

        return CPU_Accelerator()
    if name == "cuda":
        from deepspeed.accelerator.cuda_accelerator import CUDA_Accelerator

        return CUDA_Accelerator()
    raise ValueError(f"DS_ACCELERATOR is {name!r}, expected cpu or cuda")
