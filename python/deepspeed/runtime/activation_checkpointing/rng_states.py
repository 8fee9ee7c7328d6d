"""Named states of random generators, so that ranks of a tensor parallel group draw other numbers in some places."""

from deepspeed._core import CudaRNGStatesTracker, get_cuda_rng_tracker

_MODEL_PARALLEL_RNG_TRACKER_NAME = "model-parallel-rng"

__all__ = ["CudaRNGStatesTracker", "get_cuda_rng_tracker"]
