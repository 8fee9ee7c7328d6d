"""Checkpoints: what clients use beside the engine."""
