"""Keeps the lengths of a data set's samples in the two files of DeepSpeed's analyzer.

X.bin holds the numbers one after the other. X.idx describes it: a magic word, the version, a code of the type, the numbers of entries and
of documents, each entry's number of elements, each entry's offset in bytes, and the first entries of the documents.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING

import numpy as np

from deepspeed._errors import IoError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_MAGIC = b"MMIDIDX\x00\x00"
_TYPES = {1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 6: np.uint16, 7: np.uint32, 8: np.uint64}
_HEAD = "<QBQQ"  # version, type, entries, documents


def are_there(prefix: str) -> bool:
    return os.path.exists(f"{prefix}.idx") and os.path.exists(f"{prefix}.bin")


def write_lengths(prefix: str, lengths: Sequence[int] | np.ndarray[Any, Any]) -> None:
    """Writes one entry for each sample. The index is written last, so that an interrupted write leaves no complete pair of files."""
    lengths = np.asarray(lengths, dtype=np.int64)
    os.makedirs(os.path.dirname(prefix) or ".", exist_ok=True)
    lengths.tofile(f"{prefix}.bin")
    with open(f"{prefix}.idx.part", "wb") as index:
        index.write(_MAGIC + struct.pack(_HEAD, 1, 5, len(lengths), 1))
        index.write(np.ones(len(lengths), dtype=np.int32).tobytes())
        index.write((np.arange(len(lengths), dtype=np.int64) * lengths.itemsize).tobytes())
        index.write(np.zeros(1, dtype=np.int64).tobytes())
    os.replace(f"{prefix}.idx.part", f"{prefix}.idx")


def read_lengths(prefix: str) -> np.ndarray[Any, Any]:
    """Returns an array with one number for each sample. Raises IoError, naming the file, for other files."""
    with open(f"{prefix}.idx", "rb") as index:
        held = index.read()
    begin = len(_MAGIC) + struct.calcsize(_HEAD)
    if not held.startswith(_MAGIC) or len(held) < begin:
        raise IoError(f"{prefix}.idx: is no index of samples; delete it, and it is made anew")
    version, code, entries, _ = struct.unpack_from(_HEAD, held, len(_MAGIC))
    sizes = np.frombuffer(held, np.int32, min(entries, (len(held) - begin) // 4), begin)
    if version != 1 or code not in _TYPES or len(sizes) != entries or not (sizes == 1).all():
        raise IoError(f"{prefix}.idx: does not hold one length a sample; delete it, and it is made anew")
    lengths = np.fromfile(f"{prefix}.bin", dtype=_TYPES[code])
    if len(lengths) != entries:
        raise IoError(f"{prefix}.bin: has {len(lengths)} lengths, expected {entries}; delete it, and it is made anew")
    return lengths.astype(np.int64)
