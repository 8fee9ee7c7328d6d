"""The operations of reductions are torch's."""

from torch.distributed import ReduceOp as ReduceOp
