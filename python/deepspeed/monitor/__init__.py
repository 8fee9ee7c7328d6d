"""Monitors: TensorBoard, CSV files, Weights & Biases and Comet get scalars of the training."""
