"""Objects of Python in checkpoints: how pickle would make them, and how they are made again.

A file may name any class. Those of torch's list of safe globals, and those of the standard library and NumPy below, which
cannot do more than hold data, are made again; of others the file is not trusted.
"""

from __future__ import annotations

import copyreg
import enum
import importlib
import inspect
import operator
import os
import pickle
import sys
import types
from typing import TYPE_CHECKING

import torch

from deepspeed._errors import CheckpointError
from deepspeed.utils.logging import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

_PLAIN = {
    "argparse": {"Namespace"},
    "builtins": {"bytearray", "complex", "dict", "frozenset", "int", "float", "list", "object", "range", "set", "slice", "str", "tuple"},
    "collections": {"Counter", "OrderedDict", "defaultdict", "deque"},
    "copyreg": {"_reconstructor"},
    "datetime": {"date", "datetime", "time", "timedelta", "timezone"},
    "decimal": {"Decimal"},
    "fractions": {"Fraction"},
    "numpy": {"dtype", "ndarray"},
    "numpy._core.multiarray": {"_reconstruct", "scalar"},
    "numpy.core.multiarray": {"_reconstruct", "scalar"},
    "numpy.dtypes": None,  # all of them
    "numpy._core.numeric": {"_frombuffer"},
    "pathlib": {"Path", "PosixPath", "PurePath", "PurePosixPath", "PureWindowsPath", "WindowsPath"},
    "pathlib._local": {"Path", "PosixPath", "PurePath", "PurePosixPath"},
    "types": {"SimpleNamespace"},
    "uuid": {"UUID"},
    "_codecs": {"encode"},
    "_operator": {"or_"},  # of flags, and of sets and dicts, which do nothing else
}
_OF_DEEPSPEED = {
    "deepspeed.runtime.fp16.loss_scaler": {"DynamicLossScaler", "LossScaler"},
    "deepspeed.runtime.zero.config": {"ZeroStageEnum"},
    "deepspeed.utils.tensor_fragment": {"fragment_address"},
}
_FUNCTIONS = (type, types.FunctionType, types.BuiltinFunctionType)


def describe(value: Any, path: str) -> tuple[Any, ...]:
    """Returns ("global", module, name), or ("object", callable, making, arguments, keywords, state, items, pairs).

    making: "call", "new" or "new with keywords"; state, items and pairs are None where there is none. Raises TypeError that
    names `path` for what pickle cannot hold.
    """
    if isinstance(value, _FUNCTIONS):
        return _global(value, path)
    try:
        reduced = value.__reduce_ex__(2)
    except Exception as error:
        raise TypeError(f"{path}: {type(value).__qualname__} cannot stand in a checkpoint: {error}") from error
    if isinstance(reduced, str):
        return _named(value.__module__, reduced, path)
    made, arguments, state, items, pairs = (tuple(reduced) + (None,) * 5)[:5]
    if len(reduced) > 5 and reduced[5] is not None:
        raise TypeError(f"{path}: {type(value).__qualname__} cannot stand in a checkpoint: it sets its state by a function")
    making, keywords = "call", {}
    if made in (getattr, operator.or_) and isinstance(value, enum.Enum):  # Python 3.11.2's way, by names of members
        made, arguments = type(value), (value.value,)
    if made is copyreg.__newobj__:  # type: ignore[attr-defined]
        made, arguments, making = arguments[0], arguments[1:], "new"
    elif made is copyreg.__newobj_ex__:  # type: ignore[attr-defined]
        made, arguments, keywords = arguments
        making = "new with keywords"
    described = _global(made, path)
    items = None if items is None else list(items)
    pairs = None if pairs is None else list(pairs)
    return "object", described[1], described[2], making, tuple(arguments), dict(keywords), state, items, pairs


def find(module: str, name: str) -> Any:
    """Returns what the name stands for. Raises CheckpointError where the file would have to be trusted."""
    if not _is_safe(module, name) and os.environ.get("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD") != "1":
        owner, _, member = name.rpartition(".")
        if owner and _is_safe(module, owner):
            enumeration = _resolve(importlib.import_module(module), owner)
            if _is_member(enumeration, member):
                return enumeration[member]
        known = _resolve(sys.modules.get(module), owner) if owner else None  # a file that is not trusted imports nothing
        raise CheckpointError(
            f"the checkpoint holds {module}.{name}, which is no safe global: where you trust the file, call "
            f"torch.serialization.add_safe_globals([{owner if _is_member(known, member) else name}]) before, or set "
            "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1"
        )
    found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def member_of_enumeration(owner: Any, name: str) -> Any:
    """Stands for getattr() in files: Python 3.11.2 pickles a member of an enumeration as getattr(class, name)."""
    if not _is_member(owner, name):
        raise pickle.UnpicklingError(f"getattr({owner!r}, {name!r}) is called, which is no member of an enumeration.")
    return owner[name]


def _resolve(module: Any, name: str) -> Any:
    """Returns what a module has under a name with points, or None. No code of the module runs, such as that of lazy imports."""
    for part in name.split("."):
        module = inspect.getattr_static(module, part, None)
    return module


def _is_member(owner: Any, name: str) -> bool:
    return isinstance(owner, enum.EnumMeta) and name in owner.__members__


def build(
    made: Any,
    making: str,
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
    state: Any,
    items: Iterable[Any],
    pairs: Iterable[tuple[Any, Any]],
) -> Any:
    """Makes an object as pickle does."""
    value = made(*arguments) if making == "call" else made.__new__(made, *arguments, **keywords)
    if state is not None:
        _set_state(value, state)
    for item in items:
        value.append(item)
    for key, item in pairs:
        value[key] = item
    return value


def _set_state(value: Any, state: Any) -> None:
    if hasattr(value, "__setstate__"):
        value.__setstate__(state)
        return
    slots = None
    if isinstance(state, tuple) and len(state) == 2:
        state, slots = state
    if state:
        value.__dict__.update(state)
    for name, item in (slots or {}).items():
        setattr(value, name, item)


def _global(value: Any, path: str) -> tuple[str, str, str]:
    """Names a class or a function; says so where the load will refuse it."""
    name, module = getattr(value, "__qualname__", None), getattr(value, "__module__", None)
    if name is None or module is None or "<" in name:
        raise TypeError(f"{path}: {value!r} cannot stand in a checkpoint: it has no name by which it could be found again")
    return _named(module, name, path)


def _named(module: str, name: str, path: str) -> tuple[str, str, str]:
    if not _is_safe(module, name):
        logger.warning_once(
            f"{path}: {module}.{name} is saved, but is no safe global, so load_checkpoint() will refuse the file until the program "
            f"calls torch.serialization.add_safe_globals([{name}]); save plain values (numbers, texts, lists, dicts, tensors) to need none"
        )
    return "global", module, name


def _is_safe(module: str, name: str) -> bool:
    names = _PLAIN.get(module, ())
    if names is None or name in names:
        return True
    full = f"{module}.{name}"
    return full in torch._weights_only_unpickler._get_allowed_globals() or full in _added_by_the_program()


def safe_globals() -> list[Callable[..., Any] | tuple[Callable[..., Any], str]]:
    """Returns what torch.serialization.safe_globals() takes for the classes above, and those of DeepSpeed's own files."""
    named = {**_PLAIN, **_OF_DEEPSPEED, "numpy.dtypes": ()}
    found: list[Callable[..., Any] | tuple[Callable[..., Any], str]] = []
    for module, names in named.items():
        try:
            home = importlib.import_module(module)
        except ImportError:  # of another version of Python or NumPy
            continue
        found += [(getattr(home, name), f"{module}.{name}") for name in names or () if hasattr(home, name)]
    found.append((member_of_enumeration, "builtins.getattr"))
    dtypes = importlib.import_module("numpy.dtypes")
    return found + [(getattr(dtypes, name), f"numpy.dtypes.{name}") for name in dtypes.__all__]


def _added_by_the_program() -> set[str]:
    added = set()
    for entry in torch.serialization.get_safe_globals():
        if isinstance(entry, tuple):
            added.add(entry[1])
        else:
            added.add(f"{entry.__module__}.{entry.__qualname__}")
    return added
