"""Names of a package that are imported when somebody asks for them."""

import importlib


def lazy(package, submodules=(), names=None):
    """Returns a module's __getattr__ for its submodules and for names that live elsewhere, {name: module}."""
    places = names or {}

    def find(name):
        if name in places:
            return getattr(importlib.import_module(places[name]), name)
        if name in submodules:
            return importlib.import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find
