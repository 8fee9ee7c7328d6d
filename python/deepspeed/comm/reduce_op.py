"""The operations of reductions are torch's."""

from torch.distributed import ReduceOp  # noqa: F401
