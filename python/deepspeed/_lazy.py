"""Imports names of a package on first use, and makes those that it lacks."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any


def lazy(package: str, submodules: Sequence[str] = (), names: Mapping[str, str] | None = None) -> Callable[[str], Any]:
    """Returns a module's __getattr__ for its submodules and for names of other modules.

    names: {name: module}. For a name of DeepSpeed's that has no counterpart here it returns an object that raises NotSupportedError when
    it is used.
    """
    places = names or {}

    def find(name: str) -> Any:
        if name in places:
            return getattr(importlib.import_module(places[name]), name)
        if name in submodules:
            return importlib.import_module(f"{package}.{name}")
        from deepspeed._absent import stand_in

        return stand_in(package, name)

    return find
