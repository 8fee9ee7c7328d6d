"""Reads ranks from the environment, and computes message sizes."""

from __future__ import annotations

import inspect
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_MESSAGES = ("tensor", "input_tensor", "input", "tensors", "input_list", "input_tensor_list", "scatter_list")


def get_local_rank_from_launcher() -> int:
    return int(os.environ.get("LOCAL_RANK", os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", 0)))


def get_world_rank_from_launcher() -> int:
    return int(os.environ.get("RANK", os.environ.get("OMPI_COMM_WORLD_RANK", 0)))


def get_world_size_from_launcher() -> int:
    return int(os.environ.get("WORLD_SIZE", os.environ.get("OMPI_COMM_WORLD_SIZE", 1)))


def get_default_args(func: Callable[..., Any]) -> dict[str, Any]:
    """Returns {name: value} of the parameters that have a default."""
    parameters = inspect.signature(func).parameters
    return {name: parameter.default for name, parameter in parameters.items() if parameter.default is not parameter.empty}


def get_msg_size_from_args(func: Callable[..., Any], *args: Any, **kwargs: Any) -> int:
    """Returns the bytes that a call passes to a collective; 0 without a tensor."""
    given = inspect.signature(func).bind(*args, **kwargs).arguments
    message = next((given[name] for name in _MESSAGES if given.get(name) is not None), ())
    tensors = message if isinstance(message, (list, tuple)) else [message]
    return sum(tensor.element_size() * tensor.numel() for tensor in tensors)
