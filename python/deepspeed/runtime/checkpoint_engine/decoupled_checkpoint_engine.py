"""Keeps the name of a writer that does not exist here."""

from deepspeed.runtime.checkpoint_engine.utils import DecoupledCheckpointEngine as DecoupledCheckpointEngine
