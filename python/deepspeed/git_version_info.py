"""Tells the versions of this package and of the torch that it was built with."""

from __future__ import annotations

import torch

from deepspeed._version import __version__, git_branch as git_branch, git_hash as git_hash
from deepspeed.ops import __compatible_ops__ as compatible_ops
from deepspeed.ops.op_builder import ALL_OPS as ALL_OPS


def _first_two(text: str) -> str:
    return ".".join(str(text).split("+")[0].split(".")[:2])


version = __version__
installed_ops = dict(compatible_ops)
accelerator_name = "cuda" if torch.version.cuda else "cpu"
torch_info = {
    "version": _first_two(torch.__version__),
    "cuda_version": _first_two(torch.version.cuda) if torch.version.cuda else "0.0",
    "hip_version": "0.0",
    "bf16_support": True,
    "nccl_version": "0.0",
}
if torch.version.cuda and torch.distributed.is_nccl_available():
    torch_info["nccl_version"] = ".".join(map(str, torch.cuda.nccl.version()[:2]))
