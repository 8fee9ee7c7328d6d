"""Optimizers of DeepSpeed, as classes."""
from deepspeed.ops import adagrad, adam, lamb, lion
