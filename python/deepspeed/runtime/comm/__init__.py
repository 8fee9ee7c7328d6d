"""Provides collectives of several tensors at once."""
