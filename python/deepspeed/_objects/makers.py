"""Lists exactly which names a file may call, and with which arguments.

Each maker accepts the argument types that pickle itself writes, and makes nothing larger than they are: a small file stays small.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import decimal
import enum
import fractions
import pathlib
import re
import types
import uuid
from typing import TYPE_CHECKING

import torch

from deepspeed._objects.parts import Parts

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


if TYPE_CHECKING:
    Maker = Callable[[Parts], Any]

_BYTES = (bytes,)
_TEXT = (str,)
_INT = (int,)
_NUMBER = (bool, int, float)
_CONTAINER = (dict, frozenset, list, set, tuple, torch.Size, collections.Counter, collections.OrderedDict)
_ANY = (object,)
_MOST_DIGITS = 4300  # as Python's own limit for numbers in texts
_FRACTION = re.compile(rf"-?[0-9]{{1,{_MOST_DIGITS}}}(/[0-9]{{1,{_MOST_DIGITS}}})?")
_DUNDER = re.compile(r"__.*__", re.DOTALL)


def _refuse_others(parts: Parts, *taken: str) -> None:
    for name in ("keywords", "state", "items", "pairs"):
        if name not in taken and getattr(parts, name):
            raise TypeError(f"it takes no {name}")


def _of(make: Callable[..., Any], *forms: tuple[tuple[type, ...], ...], takes: str = "") -> Maker:
    """Returns a maker that calls `make` if the arguments' exact types match one of the forms."""

    def fits(form: tuple[tuple[type, ...], ...], arguments: tuple[Any, ...]) -> bool:
        return len(form) == len(arguments) and all(kinds is _ANY or type(one) in kinds for kinds, one in zip(form, arguments))

    def maker(parts: Parts) -> Any:
        _refuse_others(parts, takes)
        if not any(fits(form, parts.arguments) for form in forms):
            raise TypeError(f"it is given ({', '.join(type(one).__name__ for one in parts.arguments)})")
        made = make(*parts.arguments)
        for item in parts.items:
            made.append(item)
        for key, item in parts.pairs:
            made[key] = item
        return made

    return maker


def _with_attributes(find_class: Callable[[], type]) -> Maker:
    def maker(parts: Parts) -> Any:
        _refuse_others(parts, "state")
        state = parts.state or {}
        if parts.arguments or type(state) is not dict or any(type(name) is not str or _DUNDER.fullmatch(name) for name in state):
            raise TypeError("it is given what are no attributes")
        kind: Any = find_class()
        made = kind.__new__(kind)
        vars(made).update(state)
        return made

    return maker


def _bytearray(text: str | bytes = b"", encoding: str = "latin-1") -> bytearray:
    if encoding not in ("latin-1", "latin1"):
        raise ValueError(f"bytes are encoded as {encoding!r:.80}")
    return bytearray(text.encode("latin-1") if isinstance(text, str) else text)


def _fraction(numerator: int | str, denominator: int = 1) -> fractions.Fraction:
    if isinstance(numerator, str):
        if not _FRACTION.fullmatch(numerator):
            raise ValueError(f"a fraction is written as {numerator!r:.80}")
        return fractions.Fraction(numerator)
    if max(numerator.bit_length(), denominator.bit_length()) > 10 * _MOST_DIGITS // 3:
        raise ValueError(f"a fraction has more than {_MOST_DIGITS} digits")
    return fractions.Fraction(numerator, denominator)


def _defaultdict(factory: Any = None) -> collections.defaultdict[Any, Any]:
    if not isinstance(factory, (type(None), type, types.FunctionType)):
        raise TypeError(f"it makes its values by {factory!r:.80}, which is no class")
    return collections.defaultdict(factory)


def _uuid(parts: Parts) -> uuid.UUID:
    _refuse_others(parts, "state")
    if parts.arguments or type(parts.state) is not dict or not parts.state.keys() <= {"int", "is_safe"}:
        raise TypeError("its state is not of the known form")
    return uuid.UUID(int=parts.state["int"], is_safe=uuid.SafeUUID(parts.state.get("is_safe")))


def _either(left: enum.Flag, right: enum.Flag) -> enum.Flag:
    """Stands for operator.or_: Python 3.11.2 pickles a flag as a union of its members."""
    if not isinstance(left, enum.Flag) or type(left) is not type(right):
        raise TypeError(f"it joins a {type(left).__name__} with a {type(right).__name__}, expected two flags of one enumeration")
    return left | right


def _sparse(layout: torch.layout, described: tuple[Any, ...]) -> torch.Tensor:
    if layout is torch.sparse_coo:
        indices, values, size, *is_coalesced = described
        made = torch.sparse_coo_tensor(indices, values, size, check_invariants=True)
        return made.coalesce() if is_coalesced and is_coalesced[0] is True else made
    return torch.sparse_compressed_tensor(*described, layout=layout, check_invariants=True)


def _meta(dtype: torch.dtype, size: Any, stride: Any, requires_grad: bool) -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=dtype, device="meta", requires_grad=requires_grad)


def _scaler(name: str) -> Maker:
    def find_class() -> type:
        from deepspeed.runtime.fp16 import loss_scaler

        return {"DynamicLossScaler": loss_scaler.DynamicLossScaler, "LossScaler": loss_scaler.LossScaler}[name]

    return _with_attributes(find_class)


def _fragment_address() -> type:
    from deepspeed.utils.tensor_fragment import fragment_address

    return fragment_address


def _stage(number: int) -> Any:
    from deepspeed.runtime.zero.config import ZeroStageEnum

    return ZeroStageEnum(number)


def _numpy(name: str) -> Maker:
    def maker(parts: Parts) -> Any:
        from deepspeed._objects import arrays

        _refuse_others(parts, "state")
        return getattr(arrays, name)(parts)

    return maker


def _paths(module: str) -> dict[tuple[str, str], Maker]:
    kinds = (pathlib.Path, pathlib.PosixPath, pathlib.PurePath, pathlib.PurePosixPath, pathlib.PureWindowsPath, pathlib.WindowsPath)

    def maker(kind: type) -> Maker:
        def make(parts: Parts) -> Any:
            return _of(kind, (_TEXT,) * len(parts.arguments))(parts)

        return make

    return {(module, kind.__name__): maker(kind) for kind in kinds}


_SOME_INTS = tuple((_INT,) * count for count in range(1, 9))
_MADE_OF_A_CONTAINER: tuple[type, ...] = (dict, frozenset, list, set, tuple)

MAKERS: dict[tuple[str, str], Maker] = {
    ("argparse", "Namespace"): _with_attributes(lambda: argparse.Namespace),
    **{("builtins", kind.__name__): _of(kind, (), (_CONTAINER,)) for kind in _MADE_OF_A_CONTAINER},
    ("builtins", "bytearray"): _of(_bytearray, (), (_BYTES,), (_TEXT, _TEXT)),
    ("builtins", "complex"): _of(complex, (_NUMBER, _NUMBER)),
    ("builtins", "float"): _of(float, (), (_NUMBER,)),
    ("builtins", "int"): _of(int, (), (_NUMBER,)),
    ("builtins", "object"): _of(object, ()),
    ("builtins", "range"): _of(range, *_SOME_INTS[:3]),
    ("builtins", "slice"): _of(slice, (_ANY,), (_ANY, _ANY), (_ANY, _ANY, _ANY)),
    ("builtins", "str"): _of(str, (), (_TEXT,)),
    ("collections", "Counter"): _of(collections.Counter, (), ((dict,),), takes="pairs"),
    ("collections", "OrderedDict"): _of(collections.OrderedDict, (), takes="pairs"),
    ("collections", "defaultdict"): _of(_defaultdict, (), (_ANY,), takes="pairs"),
    ("collections", "deque"): _of(collections.deque, (), (_CONTAINER,), (_CONTAINER, (type(None), int)), takes="items"),
    ("datetime", "date"): _of(datetime.date, (_BYTES,), (_TEXT,), *_SOME_INTS),
    ("datetime", "datetime"): _of(datetime.datetime, (_BYTES,), (_BYTES, _ANY), (_TEXT,), (_TEXT, _ANY), *_SOME_INTS),
    ("datetime", "time"): _of(datetime.time, (_BYTES,), (_BYTES, _ANY), (_TEXT,), (_TEXT, _ANY), *_SOME_INTS),
    ("datetime", "timedelta"): _of(datetime.timedelta, (), *_SOME_INTS[:3]),
    ("datetime", "timezone"): _of(datetime.timezone, ((datetime.timedelta,),), ((datetime.timedelta,), _TEXT)),
    ("decimal", "Decimal"): _of(decimal.Decimal, (_TEXT,)),
    ("deepspeed.runtime.fp16.loss_scaler", "DynamicLossScaler"): _scaler("DynamicLossScaler"),
    ("deepspeed.runtime.fp16.loss_scaler", "LossScaler"): _scaler("LossScaler"),
    ("deepspeed.runtime.zero.config", "ZeroStageEnum"): _of(_stage, (_INT,)),
    ("deepspeed.utils.tensor_fragment", "fragment_address"): _with_attributes(_fragment_address),
    ("fractions", "Fraction"): _of(_fraction, (_TEXT,), (_INT, _INT)),
    ("numpy", "dtype"): _numpy("make_dtype"),
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _numpy("make_array") for core in ("_core", "core")},
    **{(f"numpy.{core}.multiarray", "scalar"): _numpy("make_scalar") for core in ("_core", "core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _numpy("make_array_of_buffer") for core in ("_core", "core")},
    **_paths("pathlib"),
    **_paths("pathlib._local"),
    ("torch", "device"): _of(torch.device, (_TEXT,), (_TEXT, _INT)),
    ("torch._utils", "_rebuild_meta_tensor_no_storage"): _of(_meta, ((torch.dtype,), _CONTAINER, _CONTAINER, (bool,))),
    ("torch._utils", "_rebuild_sparse_tensor"): _of(_sparse, ((torch.layout,), (tuple,))),
    ("torch.serialization", "_get_layout"): _of(torch.serialization._get_layout, (_TEXT,)),
    ("types", "SimpleNamespace"): _with_attributes(lambda: types.SimpleNamespace),
    ("uuid", "UUID"): _uuid,
    ("_operator", "or_"): _of(_either, (_ANY, _ANY)),
}
