"""Keeps named random states, so that tensor parallel ranks can draw different numbers."""

from deepspeed._core import CudaRNGStatesTracker, get_cuda_rng_tracker

_MODEL_PARALLEL_RNG_TRACKER_NAME = "model-parallel-rng"

__all__ = ["CudaRNGStatesTracker", "get_cuda_rng_tracker"]
