"""Saves partitioned parameters by torch.save() as placeholders of size 0, as DeepSpeed does.

Some scripts let one rank save module.state_dict() and overwrite the file, or fill in what is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from deepspeed import _core
from deepspeed.utils.logging import logger

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import SupportsIndex

_torch_reduce: Callable[[torch.Tensor, SupportsIndex], Any] = torch.Tensor.__reduce_ex__
_has_warned = False


def _reduce(tensor: torch.Tensor, protocol: SupportsIndex) -> Any:
    """Describes a tensor for pickle. A partitioned parameter becomes a tensor without elements."""
    if _core.status_of(tensor) in (None, "AVAILABLE"):
        return _torch_reduce(tensor, protocol)
    _warn(_core.param_name(tensor))
    return torch.empty(0, dtype=tensor.dtype, device=tensor.device).__reduce_ex__(protocol)


def _warn(name: str) -> None:
    """Warns once about what the file lacks."""
    global _has_warned
    if _has_warned:
        return
    _has_warned = True
    logger.warning(
        f"torch.save() writes a placeholder of size 0 for parameter '{name}', and for all others that are partitioned; "
        "engine.save_16bit_model() saves the whole weights, and so does torch.save() inside of zero.GatheredParameters"
    )


torch.Tensor.__reduce_ex__ = _reduce  # type: ignore[method-assign]  # replaced for the process
