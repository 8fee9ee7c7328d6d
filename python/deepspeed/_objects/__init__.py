"""Describes and rebuilds Python objects in checkpoints, as pickle would.

A file may name anything. Classes of the table below and of torch's own list may occur in it as values. What makers.py lists may be
called, with the arguments that pickle writes. Everything else is refused until the program adds it by
torch.serialization.add_safe_globals().
"""

from __future__ import annotations

import copyreg
import enum
import functools
import importlib
import inspect
import operator
import os
import sys
import types
from typing import TYPE_CHECKING

import torch

from deepspeed._errors import CheckpointError
from deepspeed._objects.makers import MAKERS
from deepspeed._objects.parts import Parts
from deepspeed.utils.logging import logger

if TYPE_CHECKING:
    from typing import Any

_PATHS = frozenset({"Path", "PosixPath", "PurePath", "PurePosixPath", "PureWindowsPath", "WindowsPath"})
# Classes that may occur as values. makers.py lists what may be called.
_PLAIN: dict[str, frozenset[str]] = {
    "argparse": frozenset({"Namespace"}),
    "builtins": frozenset("bool bytearray bytes complex dict float frozenset int list object range set slice str tuple".split()),
    "collections": frozenset({"Counter", "OrderedDict", "defaultdict", "deque"}),
    "datetime": frozenset({"date", "datetime", "time", "timedelta", "timezone"}),
    "decimal": frozenset({"Decimal"}),
    "deepspeed.runtime.fp16.loss_scaler": frozenset({"DynamicLossScaler", "LossScaler"}),
    "deepspeed.runtime.zero.config": frozenset({"ZeroStageEnum"}),
    "deepspeed.utils.tensor_fragment": frozenset({"fragment_address"}),
    "fractions": frozenset({"Fraction"}),
    "numpy": frozenset({"dtype", "ndarray"}),
    "numpy.dtypes": frozenset(
        (
            "BoolDType ByteDType BytesDType CLongDoubleDType Complex128DType Complex64DType DateTime64DType Float16DType Float32DType "
            "Float64DType Int16DType Int32DType Int64DType Int8DType IntDType LongDType LongDoubleDType LongLongDType ObjectDType "
            "ShortDType StrDType StringDType TimeDelta64DType UByteDType UInt16DType UInt32DType UInt64DType UInt8DType UIntDType "
            "ULongDType ULongLongDType UShortDType VoidDType"
        ).split()
    ),
    "pathlib": _PATHS,
    "pathlib._local": _PATHS,
    "types": frozenset({"SimpleNamespace"}),
    "uuid": frozenset({"UUID"}),
}
_MOVED = {"pathlib._local": "pathlib"}  # of Python 3.13, and back
_FUNCTIONS = (type, types.FunctionType, types.BuiltinFunctionType)
_RECONSTRUCTOR = ("copyreg", "_reconstructor")
_BASES = (object, bytes, complex, dict, float, frozenset, int, list, set, str, tuple)
_NOTHING = object()


def describe(value: Any, path: str) -> tuple[Any, ...]:
    """Returns ("global", module, name), or ("object", callable, making, arguments, keywords, state, items, pairs).

    making: "call", "new" or "new with keywords". state, items and pairs are None if the object has none. Raises TypeError, naming `path`,
    for what pickle cannot hold.
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
    described = _global(made, path, is_called=True)
    items = None if items is None else list(items)
    pairs = None if pairs is None else list(pairs)
    return "object", described[1], described[2], making, tuple(arguments), dict(keywords), state, items, pairs


def find(module: str, name: str) -> Any:
    """Returns the class or constant that a file names as a value. Raises CheckpointError unless it is listed."""
    if trusts_files():
        return _imported(module, name)
    found = _listed(module, name)
    if found is _NOTHING:
        raise _refusal(module, name)
    return found


def build(
    module: str,
    name: str,
    callable: Any,
    making: str,
    arguments: tuple[Any, ...],
    keywords: dict[Any, Any],
    state: Any,
    items: list[Any],
    pairs: list[tuple[Any, Any]],
) -> Any:
    """Makes an object as pickle does.

    callable: the result of another call, in place of the name; None: the name is meant. Raises CheckpointError if the name is not listed,
    or if the arguments are not those that pickle writes.
    """
    parts = Parts(arguments, keywords, state, items, pairs)
    if trusts_files():
        return _filled(_called(_imported(module, name) if callable is None else callable, making, parts), parts)
    if callable is not None:
        raise CheckpointError(
            f"the checkpoint calls a {type(callable).__qualname__} that another call has returned, which no safe global needs: where you "
            "trust the file, set TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1"
        )
    maker = MAKERS.get((module, name))
    own = None if maker is not None else _added_by_the_program().get(f"{module}.{name}")
    if maker is None and own is None and (module, name) != _RECONSTRUCTOR:
        raise _refusal(module, name)
    try:
        if maker is not None:
            return maker(parts)
        made = _called(own, making, parts) if own is not None else _reconstructed(*arguments)
        return _filled(made, parts, closed=True)
    except CheckpointError:
        raise
    except Exception as error:
        raise CheckpointError(f"the checkpoint holds a {module}.{name} that cannot be made: {type(error).__name__}: {error}") from error


def trusts_files() -> bool:
    """Returns whether the user trusts all files. Trusted files are read by pickle itself, and may run any code."""
    yes = ("1", "y", "yes", "true")  # the values that torch.load() accepts
    is_closed = os.environ.get("TORCH_FORCE_WEIGHTS_ONLY_LOAD") in yes
    return os.environ.get("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD") in yes and not is_closed


def _imported(module: str, name: str) -> Any:
    found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _listed(module: str, name: str) -> Any:
    """Returns the value of a listed name, or of a member of a listed enumeration."""
    found = _listed_itself(module, name)
    if found is not _NOTHING or "." not in name:
        return found
    owner, _, member = name.rpartition(".")
    enumeration = _listed_itself(module, owner)
    return enumeration.__members__[member] if _is_member(enumeration, member) else _NOTHING


def _listed_itself(module: str, name: str) -> Any:
    """Returns the value of a name that is in one of the lists.

    These are the table above, torch's own list, and what the program has added.
    """
    if name in _PLAIN.get(module, ()):
        return getattr(importlib.import_module(_MOVED.get(module, module)), name, _NOTHING)
    of_torch = _torch_values()
    if (module, name) in of_torch:
        return of_torch[module, name]
    return _added_by_the_program().get(f"{module}.{name}", _NOTHING)


@functools.cache
def _torch_values() -> dict[tuple[str, str], Any]:
    """Returns the classes and constants that torch allows in files, by module and name. Functions are left out."""
    allowed = torch._weights_only_unpickler._get_allowed_globals()
    values = {("torch", name): value for name, value in _names_in("torch", allowed) if not callable(value)}
    for kinds in (torch._tensor_classes, torch._storage_classes, (torch.Tensor, torch.Size, torch.device, torch.nn.Parameter)):
        values.update(((kind.__module__, kind.__name__), kind) for kind in kinds if f"{kind.__module__}.{kind.__name__}" in allowed)
    return values


def _names_in(module: str, by_full_name: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(full.rpartition(".")[2], value) for full, value in by_full_name.items() if full.rpartition(".")[0] == module]


def _refusal(module: str, name: str) -> CheckpointError:
    owner, _, member = name.rpartition(".")
    known = _resolve(sys.modules.get(module), owner) if owner else None  # nothing is imported for a file that is not trusted
    return CheckpointError(
        f"the checkpoint holds {module}.{name}, which is no safe global: where you trust the file, call "
        f"torch.serialization.add_safe_globals([{owner if _is_member(known, member) else name}]) before, or set "
        "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1"
    )


def _resolve(module: Any, name: str) -> Any:
    """Returns what a module has under a dotted name, or None. It runs no code of the module, such as lazy imports."""
    for part in name.split("."):
        module = inspect.getattr_static(module, part, None)
    return module


def _is_member(owner: Any, name: str) -> bool:
    return isinstance(owner, enum.EnumMeta) and name in owner.__members__


def _called(made: Any, making: str, parts: Parts) -> Any:
    return made(*parts.arguments) if making == "call" else made.__new__(made, *parts.arguments, **parts.keywords)


def _reconstructed(kind: Any, base: Any, content: Any) -> Any:
    """Makes what copyreg._reconstructor() makes, for the program's own classes."""
    if kind not in _added_by_the_program().values() or base not in _BASES or not isinstance(kind, type):
        raise TypeError(f"copyreg._reconstructor is given {kind!r:.80} and {base!r:.80}")
    if base is object:
        return object.__new__(kind)
    if type(content) is not base:
        raise TypeError(f"copyreg._reconstructor is given a {type(content).__name__} for a {base.__name__}")
    made = base.__new__(kind, content)
    if base.__init__ is not object.__init__:
        base.__init__(made, content)
    return made


def _filled(value: Any, parts: Parts, closed: bool = False) -> Any:
    """Adds what pickle adds after the call. closed: refuses state for a listed class or a member of an enumeration."""
    if closed and parts.state is not None and (type(value).__module__ in _PLAIN or isinstance(value, enum.Enum)):
        raise TypeError(f"the {type(value).__qualname__} that it returns is given a state")
    for item in parts.items:
        value.append(item)
    for key, item in parts.pairs:
        value[key] = item
    if parts.state is not None:
        _set_state(value, parts.state)
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


def _global(value: Any, path: str, is_called: bool = False) -> tuple[str, str, str]:
    """Names a class or a function, and warns if the load will refuse it."""
    name, module = getattr(value, "__qualname__", None), getattr(value, "__module__", None)
    if name is None or module is None or "<" in name:
        raise TypeError(f"{path}: {value!r} cannot stand in a checkpoint: it has no name by which it could be found again")
    return _named(module, name, path, is_called)


def _named(module: str, name: str, path: str, is_called: bool = False) -> tuple[str, str, str]:
    if not _is_safe(module, name, is_called):
        logger.warning_once(
            f"{path}: {module}.{name} is saved, but is no safe global, so load_checkpoint() will refuse the file until the program "
            f"calls torch.serialization.add_safe_globals([{name}]); save plain values (numbers, texts, lists, dicts, tensors) to need none"
        )
    return "global", module, name


def _is_safe(module: str, name: str, is_called: bool) -> bool:
    if not is_called:
        return _listed(module, name) is not _NOTHING
    return (module, name) in MAKERS or (module, name) == _RECONSTRUCTOR or f"{module}.{name}" in _added_by_the_program()


def _added_by_the_program() -> dict[str, Any]:
    """Returns what torch.serialization.add_safe_globals() was given, by full name."""
    added = {}
    for entry in torch.serialization.get_safe_globals():
        value, name = entry if isinstance(entry, tuple) else (entry, f"{entry.__module__}.{entry.__qualname__}")
        added[name] = value
    return added
