"""Mixtures of experts: parameter groups alone; the layer is not supported."""
