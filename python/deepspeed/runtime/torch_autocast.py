"""Applies torch.autocast as the section `torch_autocast` says. The core stores which parameters are marked."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from deepspeed import _core
from deepspeed._model import class_name

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

LOWER_PRECISION_SAFE_MODULES = [torch.nn.Linear, torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d]
PARAM_COMM_DTYPE_ATTR_NAME = "comm_dtype"


class _OfMarked:
    """Defines an attribute of Parameter that only marked parameters have. So hasattr(p, "comm_dtype") tells them apart."""

    def __get__(self, param: torch.Tensor | None, owner: type | None = None) -> Any:
        if param is None:
            return self
        dtype = _core.find_autocast_dtype(param)
        if dtype is None:
            raise AttributeError(f"{PARAM_COMM_DTYPE_ATTR_NAME}: the parameter is not marked")
        return dtype

    def __set__(self, param: torch.Tensor, dtype: torch.dtype) -> None:
        _core.set_autocast_dtype(param, dtype)

    def __delete__(self, param: torch.Tensor) -> None:
        _core.clear_autocast_dtype(param)


setattr(torch.nn.Parameter, PARAM_COMM_DTYPE_ATTR_NAME, _OfMarked())


def get_default_autocast_lower_precision_modules() -> list[str]:
    """Returns the default class names whose parameters are marked."""
    return [f"{cls.__module__}.{cls.__name__}" for cls in LOWER_PRECISION_SAFE_MODULES]


def with_safe_modules(config: dict[str, Any]) -> dict[str, Any]:
    """Returns the config with the core's class names in `lower_precision_safe_modules`.

    Raises ValueError if a class cannot be imported, since no parameter would be marked.
    """
    section: Any = config.get("torch_autocast")
    names = section.get("lower_precision_safe_modules") if isinstance(section, Mapping) and section.get("enabled") is True else None
    if not isinstance(names, (list, tuple)):  # the core refuses other types
        return config
    classes = [class_name(_import_class(str(name))) for name in names]
    return {**config, "torch_autocast": {**section, "lower_precision_safe_modules": classes}}


def _import_class(name: str) -> type:
    module, _, kind = name.rpartition(".")
    try:
        found: type = getattr(importlib.import_module(module), kind)
        return found
    except (ImportError, AttributeError, ValueError):
        raise ValueError(
            f"Failed to import lower precision safe module {name}: torch_autocast.lower_precision_safe_modules names it; "
            "expected the full name of a class, as torch.nn.Linear"
        ) from None


def is_autocast_initialized() -> bool:
    """Returns whether this process has marked parameters."""
    return _core.is_autocast_initialized()


def has_comm_dtype(param: torch.Tensor) -> bool:
    """Returns whether the parameter is marked: its gradients are communicated in lower precision."""
    return _core.find_autocast_dtype(param) is not None


def get_comm_dtype(param: torch.Tensor) -> torch.dtype:
    """Returns the dtype in which the parameter's gradients are communicated. It is the parameter's own unless it is marked."""
    marked = _core.find_autocast_dtype(param)
    return param.dtype if marked is None else marked


def get_all_comm_dtypes(params: Iterable[torch.Tensor]) -> set[torch.dtype]:
    """Returns the set of the parameters' communication dtypes."""
    return {get_comm_dtype(param) for param in params}


def sort_dtypes(dtypes: Iterable[torch.dtype]) -> list[torch.dtype]:
    """Sorts dtypes by name, so that all ranks have the same order."""
    return sorted(dtypes, key=str)
