"""Provides torch.distributed's collectives under DeepSpeed's names."""

from deepspeed.comm import comm as comm
from deepspeed.comm.comm import *
from deepspeed.comm.torch import TorchBackend as TorchBackend
