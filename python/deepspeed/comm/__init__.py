"""Collectives: torch.distributed's, under DeepSpeed's names."""

from deepspeed.comm import comm
from deepspeed.comm.comm import *
from deepspeed.comm.torch import TorchBackend
