"""Makes arrays, dtypes and scalars of NumPy that checkpoints hold.

NumPy's own __setstate__() trusts the sizes and object positions of a file. Here constructors that check them make everything.
"""

from __future__ import annotations

import math
import re
import sys
from typing import TYPE_CHECKING

import numpy

if TYPE_CHECKING:
    from typing import Any

    from deepspeed._objects.parts import Parts

_KINDS = "biufcmMOSUV"  # booleans, numbers, times, objects, texts, bytes, records
_DTYPE_TEXT = re.compile(r"[?a-zA-Z][0-9]{0,10}")
_OTHER_ORDER = ">" if sys.byteorder == "little" else "<"
_ALIGNED = 0x80  # of a dtype's flags
_MOST_BYTES_OF_A_FIELD = 64  # in records with objects, whose items do not tell their size


def make_dtype(parts: Parts) -> numpy.dtype[Any]:
    """Makes numpy.dtype(text, False, True) with the state that says byte order, fields and units."""
    text = parts.arguments[0] if parts.arguments else None
    if type(text) is not str or not _DTYPE_TEXT.fullmatch(text) or any(type(flag) not in (bool, int) for flag in parts.arguments[1:]):
        raise TypeError(f"numpy.dtype is given {parts.arguments!r:.80}")
    return _known_kind(numpy.dtype(text) if parts.state is None else _dtype_of_state(text, *parts.state))


def make_array(parts: Parts) -> Any:
    """Makes _reconstruct(ndarray, (0,), b"b") with the state that says shape, dtype, order and content."""
    kind, shape, *_ = parts.arguments
    if not isinstance(kind, type) or not issubclass(kind, numpy.ndarray) or shape != (0,):
        raise TypeError(f"an array is made of {kind!r:.80} and {shape!r:.80}")
    if parts.state is None:
        return numpy.ndarray((0,), numpy.int8).view(kind)
    shape, dtype, is_fortran, content = parts.state[-4:]
    order = "F" if is_fortran else "C"
    array = _of_items(content, dtype, shape, order) if type(content) is list else _of_bytes(content, dtype, shape, order)
    return array.view(kind)


def make_array_of_buffer(parts: Parts) -> Any:
    """Makes _frombuffer(bytes, dtype, shape, order[, axes]), the form of arrays in protocol 5."""
    content, dtype, shape, order, *axes = parts.arguments
    if order not in ("C", "F", "K"):
        raise TypeError(f"an array has the order {order!r:.80}")
    array = _of_bytes(content, dtype, shape, "F" if order == "F" else "C")
    return array.transpose(axes[0]) if axes and axes[0] is not None else array


def make_scalar(parts: Parts) -> Any:
    """Makes scalar(dtype, bytes)."""
    dtype, content = parts.arguments
    if isinstance(content, numpy.ndarray) and content.shape == () and content.dtype == dtype:
        return content[()]  # a record that holds objects
    return _of_bytes(content, dtype, (), "C")[()]


def _known_kind(dtype: Any) -> numpy.dtype[Any]:
    if not isinstance(dtype, numpy.dtype) or dtype.kind not in _KINDS:
        raise TypeError(f"{dtype!r:.80} is no dtype that files hold")
    return dtype


def _dtype_of_state(text: str, version: int, byte_order: str, base: Any, names: Any, fields: Any, size: int, *more: Any) -> Any:
    flags, *metadata = more[1:]  # after the alignment
    if base is not None:
        made = numpy.dtype((_known_kind(base[0]), base[1]))
    elif names is not None:
        made = _record(names, fields, size, bool(flags & _ALIGNED))
    else:
        made = numpy.dtype(text)
    about = metadata[0] if metadata else None
    if made.kind in "mM":
        about, unit = about if about is not None else (None, ("generic", 1, 1, 1))
        made = _with_unit(text, *unit)
    if byte_order == _OTHER_ORDER:
        made = made.newbyteorder("S")
    if about:
        made = numpy.dtype(made, metadata=dict(about))
    if size not in (-1, made.itemsize):
        raise ValueError(f"the dtype {made!r:.80} has {made.itemsize} bytes, the file says {size}")
    return made


def _record(names: Any, fields: Any, size: int, is_aligned: bool) -> numpy.dtype[Any]:
    described = [fields[name] for name in names]
    form = {
        "names": list(names),
        "formats": [_known_kind(field[0]) for field in described],
        "offsets": [field[1] for field in described],
        "titles": [field[2] if len(field) > 2 else None for field in described],
        "itemsize": size,
    }
    if not names:
        return numpy.dtype([])
    made: numpy.dtype[Any] = numpy.dtype(form, align=is_aligned)  # type: ignore[call-overload]
    if made.hasobject and size > _MOST_BYTES_OF_A_FIELD * len(names):
        raise ValueError(f"records that hold objects have {size} bytes for {len(names)} fields")
    return made


def _with_unit(text: str, name: Any, number: int, divisor: int, *_: Any) -> numpy.dtype[Any]:
    name = name.decode("ascii") if type(name) is bytes else name
    if type(name) is not str or not name.isalpha() or divisor != 1:
        raise TypeError(f"times are counted in {name!r:.80} / {divisor!r:.80}")
    return numpy.dtype(text if name == "generic" else f"{text}[{number:d}{name}]")


def _count(shape: Any) -> int:
    if type(shape) is not tuple or any(type(size) is not int or size < 0 for size in shape):
        raise TypeError(f"an array has the shape {shape!r:.80}")
    return math.prod(shape)


def _of_bytes(content: Any, dtype: Any, shape: Any, order: Any) -> Any:
    """Copies bytes into an array, whose size they must have exactly. Files of Python 2 hold them as text."""
    content = content.encode("latin-1") if type(content) is str else content
    dtype = _known_kind(dtype)
    if dtype.hasobject or type(content) not in (bytes, bytearray):
        raise TypeError(f"an array of {dtype!r:.80} is made of {type(content).__name__}")
    if _count(shape) * dtype.itemsize != len(content):
        raise ValueError(f"an array of the shape {shape!r:.80} and of {dtype!r:.80} is made of {len(content)} bytes")
    array: Any = numpy.ndarray(shape, dtype, buffer=content, order=order)
    return array if dtype.itemsize == 0 else array.copy(order="K")


def _of_items(items: list[Any], dtype: Any, shape: Any, order: Any) -> Any:
    dtype = _known_kind(dtype)
    if not dtype.hasobject or dtype.subdtype is not None or _count(shape) != len(items):
        raise ValueError(f"an array of the shape {shape!r:.80} and of {dtype!r:.80} is made of {len(items)} items")
    array: Any = numpy.empty(shape, dtype, order=order)
    for place, item in zip(numpy.ndindex(shape), items):
        array[place] = item
    return array
