"""Modules of DeepSpeed that have no counterpart here can be imported, since programs import more than they use.

A finder makes each from the table of `_absent_names`, which has names that modules of this package lack as well. Calling a
function or instantiating a class of the table raises NotSupportedError with the way out.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from typing import TYPE_CHECKING

from deepspeed._errors import not_supported, not_supported_class

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any


def stand_in(module: str, name: str) -> Any:
    """Returns what stands for a name or a submodule that the module lacks; raises AttributeError where DeepSpeed has none."""
    from deepspeed._absent_names import find

    _, names = find(module) or ("", {})
    full = f"{module}.{name}"
    if name not in names:
        if name.startswith("__") or find(full) is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return importlib.import_module(full)
    make = not_supported_class if name.lstrip("_")[:1].isupper() else not_supported
    made = make(full, names[name])
    made.__module__ = module
    sys.modules[module].__dict__[name] = made
    return made


class _AbsentModule(types.ModuleType):
    """Makes its names when they are asked for."""

    def __getattr__(self, name: str) -> Any:
        return stand_in(self.__name__, name)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands last on the path: it is asked for what no file has."""

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if not fullname.startswith("deepspeed."):
            return None
        from deepspeed._absent_names import find

        found = find(fullname)
        if found is None:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True, loader_state=found)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _AbsentModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        way_out, names = module.__spec__.loader_state
        module.__dict__.update(__all__=list(names), __doc__=f"Has no counterpart here: {way_out}.")


def install() -> None:
    """Puts the finder behind all others, once."""
    if not any(type(finder).__qualname__ == "_Finder" and type(finder).__module__ == __name__ for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
