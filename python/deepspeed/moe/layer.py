"""Defines DeepSpeed's mixture-of-experts layer by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from deepspeed._errors import NotSupportedError

if TYPE_CHECKING:
    import torch


class MoE(nn.Module):
    """Raises NotSupportedError: expert parallelism does not exist."""

    def __init__(self, hidden_size: int, expert: torch.nn.Module, num_experts: int = 1, ep_size: int = 1, **_: object) -> None:
        raise NotSupportedError(
            f"moe.layer.MoE(num_experts={num_experts}, ep_size={ep_size}) is not supported: expert parallelism does not exist; "
            "use a mixture of experts in plain torch, marked by deepspeed.utils.set_z3_leaf_modules() at stage 3"
        )
