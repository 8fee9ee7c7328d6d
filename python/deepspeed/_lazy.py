"""Names of a package that are imported when somebody asks for them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any


def lazy(package: str, submodules: Sequence[str] = (), names: Mapping[str, str] | None = None) -> Callable[[str], Any]:
    """Returns a module's __getattr__ for its submodules and for names that live elsewhere, {name: module}."""
    places = names or {}

    def find(name: str) -> Any:
        if name in places:
            return getattr(importlib.import_module(places[name]), name)
        if name in submodules:
            return importlib.import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find
