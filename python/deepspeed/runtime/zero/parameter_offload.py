"""Defines the dict of a stage 3 module's parameters, which reports reads by other modules."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from deepspeed._errors import not_supported_class

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch


class ZeROOrderedDict(OrderedDict[str, Any]):
    """Holds a module's parameters, and tells the engine when one is read.

    Operators gather what they use. A kernel that takes addresses does not, and it may get the weight of a module that is not running. The
    engine makes such a parameter whole, as it does for the running module.
    """

    def __init__(self, parent_module: torch.nn.Module | None = None, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._parent_module = parent_module
        self._reader: Callable[[Any, torch.Tensor], None] | None = None  # the engine's function of (module, parameter)

    def __getitem__(self, key: str) -> Any:
        param = super().__getitem__(key)
        if param is not None and self._reader is not None:
            self._reader(self._parent_module, param)
        return param

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies the dict without the engine."""
        return (type(self), (self._parent_module,), None, None, iter(self.items()))


def ensure_zero_ordered_dict(module: Any, reader: Callable[[torch.nn.Module, torch.Tensor], None] | None = None) -> None:
    """Makes the module's dict of parameters a ZeROOrderedDict. module._original_parameters keeps the original dict."""
    attributes = module.__dict__  # a module that torch.compile has wrapped sets attributes of the inner module
    held = attributes.get("_parameters")
    if not isinstance(held, dict):
        return
    if not isinstance(held, ZeROOrderedDict):
        attributes.setdefault("_original_parameters", held)
        held = attributes["_parameters"] = ZeROOrderedDict(module, held)
    if reader is not None:
        held._reader = reader


def give_plain_dict_back(module: Any) -> None:
    """Restores a plain dict with the module's current parameters."""
    attributes = module.__dict__
    if isinstance(attributes.get("_parameters"), ZeROOrderedDict):
        attributes["_parameters"] = dict(attributes["_parameters"])
        attributes.pop("_original_parameters", None)


DeepSpeedZeRoOffload = not_supported_class(
    "deepspeed.runtime.zero.parameter_offload.DeepSpeedZeRoOffload",
    "the engine gathers parameters by itself: call initialize(); without an optimizer it serves inference",
)
