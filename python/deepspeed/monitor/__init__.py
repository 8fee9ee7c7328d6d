"""Sends training scalars to TensorBoard, CSV files, Weights & Biases and Comet."""
