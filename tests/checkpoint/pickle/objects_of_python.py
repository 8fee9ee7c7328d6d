"""Objects of all kinds that Python pickles: written to a file of torch.save's form, and compared with what such a file holds.

    python objects_of_python.py write FILE [PROTOCOL]     all objects
    python objects_of_python.py compare FILE              exit code 0 where FILE holds objects that equal them
    python objects_of_python.py write_allowed FILE        those alone that torch.load(weights_only=True) makes
    python objects_of_python.py compare_allowed FILE

Without torch the file is written and read by pickle alone; without numpy its objects are left out.
tests/golden/torch_archive/objects.pt is what `write` makes with both.
"""

import argparse
import collections
import dataclasses
import datetime
import decimal
import enum
import functools
import math
import pathlib
import pickle
import random
import sys
import uuid
import zipfile

try:
    import torch
except ImportError:
    torch = None
try:
    import numpy
except ImportError:
    numpy = None


@dataclasses.dataclass
class Point:
    x: float
    tags: list


class Color(enum.Enum):
    RED = 1
    BLUE = "b"


class Outer:
    class Inner:
        def __init__(self, value):
            self.value = value

        def __eq__(self, other):
            return type(other) is type(self) and other.value == self.value


class Slots:
    __slots__ = ("left", "right")

    def __init__(self, left, right):
        self.left, self.right = left, right

    def __eq__(self, other):
        return type(other) is Slots and (other.left, other.right) == (self.left, self.right)


class ByKeyword:
    """Is made by __new__ with a keyword, which protocol 4 has an operation for."""

    def __new__(cls, *, size):
        made = super().__new__(cls)
        made.size = size
        return made

    def __getnewargs_ex__(self):
        return (), {"size": self.size}

    def __getstate__(self):
        return None

    def __eq__(self, other):
        return type(other) is ByKeyword and other.size == self.size


class Words(list):
    pass


def allowed_objects():
    objects = {
        "counter": collections.Counter("abba"),
        "ordered": collections.OrderedDict(b=1, a=2),
        "complex": 1 - 2j,
        "bytearray": bytearray(b"\x00\xff"),
        "bytes": b"\x00\xff",
        "set": {1, "x"},
        "long": 2**100,
        "negative": -(2**100),
        "edges": [2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64],
        "nested": [({"k": (1, None)},)],
    }
    if torch is not None:
        objects["device"] = torch.device("cuda", 1)
        objects["size"] = torch.Size([2, 3])
        objects["dtype"] = torch.bfloat16
        objects["tensor"] = torch.arange(6.0).view(2, 3)
    return objects


def all_objects():
    grouped = collections.defaultdict(list, {"a": [1], (1, "b"): [2]})
    objects = {
        **allowed_objects(),
        "namespace": argparse.Namespace(lr=0.1, tags=["a", "b"]),
        "frozenset": frozenset([1, (2, "x")]),
        "classes": [collections.Counter, int, str, Point, Outer.Inner, type(None)],
        "functions": [math.sqrt, len, datetime.datetime.fromtimestamp],
        "constants": [Ellipsis, NotImplemented],
        "dataclass": Point(0.5, ["t"]),
        "enum": Color.RED,
        "by_enum": {Color.BLUE: 1, Color.RED: 2},
        "by_tuple": {(1, (2, "x")): 1, (1, (2, "y")): 2, 0.1234567: 3, 0.1234568: 4, 2**70: 5, b"k": 6, int: 7},
        "inner": Outer.Inner(3),
        "slots": Slots(1, "r"),
        "by_keyword": ByKeyword(size=4),
        "words": Words(["a", "b"]),
        "defaultdict": grouped,
        "deque": collections.deque([1, 2, 3], maxlen=5),
        "empty": [b"", bytearray(), set(), frozenset()],
        "datetime": datetime.datetime(2024, 2, 29, 12, 30, tzinfo=datetime.timezone.utc),
        "delta": datetime.timedelta(days=2),
        "path": pathlib.PosixPath("/a/b"),
        "partial": functools.partial(int, base=2),
        "decimal": decimal.Decimal("1.10"),
        "uuid": uuid.UUID(int=7),
        "range": range(1, 9, 2),
        "slice": slice(1, None, 2),
        "random": random.Random(3).getstate(),
        "chain": collections.ChainMap({"a": 1}),
        "user_dict": collections.UserDict(a=1),
        "exception": ValueError("v", 3),
    }
    if numpy is not None:
        objects["array"] = numpy.arange(12, dtype=numpy.float32).reshape(3, 4)
        objects["arrays"] = [numpy.array(["a", "bc"]), numpy.array([1, None, "x"], dtype=object), numpy.zeros((0, 2))]
        objects["scalars"] = [numpy.float64(0.5), numpy.int32(-3), numpy.bool_(True)]
        objects["dtypes"] = [numpy.dtype("<i2"), numpy.dtype([("a", "f4"), ("b", "i8", (2,))])]
        objects["numpy_random"] = numpy.random.RandomState(5).get_state()
        objects["generator"] = numpy.random.default_rng(5).bit_generator.state
    if torch is not None:
        objects["tensor_inside"] = Point(torch.ones(3), [torch.float16])
    return objects


def same(left, right):
    if type(left) is not type(right):
        return False
    if isinstance(left, functools.partial):
        return (left.func, left.args, left.keywords) == (right.func, right.args, right.keywords)
    if isinstance(left, BaseException):
        return left.args == right.args
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if dataclasses.is_dataclass(left) and not isinstance(left, type):
        return same(vars(left), vars(right))
    if numpy is not None and isinstance(left, numpy.ndarray):
        return left.dtype == right.dtype and left.shape == right.shape and bool((left == right).all())
    if torch is not None and isinstance(left, torch.Tensor):
        return left.dtype == right.dtype and torch.equal(left, right)
    if isinstance(left, (collections.deque, collections.defaultdict)):
        return repr(left) == repr(right)
    return left == right


def write(file, objects, protocol):
    if torch is not None:
        torch.save(objects, file, pickle_protocol=protocol)
        return
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(objects, protocol))
        archive.writestr("archive/version", "3\n")


def read(file, weights_only):
    if torch is not None:
        return torch.load(file, weights_only=weights_only)
    with zipfile.ZipFile(file) as archive:
        return pickle.loads(archive.read("archive/data.pkl"))


def compare(file, objects, weights_only):
    found = read(file, weights_only)
    unequal = [key for key in objects if key not in found or not same(objects[key], found[key])]
    if unequal or len(found) != len(objects):
        sys.exit(f"not equal: {unequal}; of {len(objects)} there are {len(found)}")


def main():
    command, file, *protocol = sys.argv[1:]
    allowed = command.endswith("_allowed")
    objects = allowed_objects() if allowed else all_objects()
    if command.startswith("write"):
        write(file, objects, int(protocol[0]) if protocol else 2)
    else:
        compare(file, objects, weights_only=allowed)


if __name__ == "__main__":
    main()
