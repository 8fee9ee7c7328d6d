"""Names of a package that are imported when somebody asks for them, and those that it lacks."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any


def lazy(package: str, submodules: Sequence[str] = (), names: Mapping[str, str] | None = None) -> Callable[[str], Any]:
    """Returns a module's __getattr__ for its submodules and for names that live elsewhere, {name: module}.

    A name of DeepSpeed's that has no counterpart here stands for itself, and says the way out where it is used.
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
