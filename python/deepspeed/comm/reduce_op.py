"""Exports torch's reduction operations."""

from torch.distributed import ReduceOp as ReduceOp
