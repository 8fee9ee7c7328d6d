"""No file runs code, by whatever way it is read, and none makes much of few bytes."""

import collections
import copyreg
import datetime
import enum
import importlib
import inspect
import pathlib
import shutil
import struct
import sys
import types
import zipfile

import numpy
import pytest
import torch

import deepspeed
from deepspeed import _objects
from deepspeed.checkpoint import ds_to_universal
from deepspeed.checkpoint.deepspeed_checkpoint import DeepSpeedCheckpoint
from deepspeed.checkpoint.reshape_3d_utils import get_model_3d_descriptor
from deepspeed.checkpoint.zero_checkpoint import ZeROCheckpoint
from deepspeed.runtime.checkpoint_engine.torch_checkpoint_engine import TorchCheckpointEngine
from deepspeed.utils.zero_to_fp32 import convert_zero_checkpoint_to_fp32_state_dict, get_fp32_state_dict_from_zero_checkpoint
from one_engine import CONFIG, make, step

MARKER = "the marker that another operation replaces"


def text(value):
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def number(value):
    size = value.bit_length() // 8 + 1
    return b"\x8b" + struct.pack("<I", size) + value.to_bytes(size, "little", signed=True)


def name(module, attribute):
    return b"c" + module.encode() + b"\n" + attribute.encode() + b"\n"


def tuple_of(*items):
    return b"(" + b"".join(items) + b"t"


def call(callable, *arguments):
    return callable + tuple_of(*arguments) + b"R"


def new(kind, *arguments):
    return kind + tuple_of(*arguments) + b"\x81"


def dict_of(**pairs):
    return b"}(" + b"".join(text(key) + value for key, value in pairs.items()) + b"u"


def with_state(made, state):
    return made + state + b"b"


def attacks(mark):
    """Returns pickles by what they try: to make the file `mark`, or to bring something callable back."""
    code = text(f"open({mark!r}, 'w').close()")
    builtins_of_numpy = name("numpy.dtypes", "__builtins__.get")
    path = call(name("pathlib", "PosixPath"), text(mark))
    namespace, simple = name("argparse", "Namespace"), name("types", "SimpleNamespace")
    partial = call(name("functools", "partial"), name("builtins", "eval"))
    return {
        "eval": call(name("builtins", "eval"), code),
        "exec": call(name("builtins", "exec"), code),
        "open": call(name("io", "open"), text(mark), text("w")),
        "system": call(name("posix", "system"), text(f"touch {mark}")),
        "eval of a module's builtins": call(call(builtins_of_numpy, text("eval")), code),
        "exec of a module's builtins": call(call(builtins_of_numpy, text("exec")), code),
        "eval of Python 2's name": call(name("__builtin__", "eval"), code),
        "getattr of a module": call(call(name("builtins", "getattr"), name("numpy.dtypes", "__builtins__"), text("get")), text("eval")),
        "getattr alone": name("builtins", "getattr"),
        "globals of a function": call(name("numpy.dtypes", "_add_dtype_helper.__globals__.get"), text("__builtins__")),
        "a loader's set_data": call(name("numpy.dtypes", "__loader__.set_data"), text(mark), call(name("builtins", "bytes"))),
        "a loader": name("numpy.dtypes", "__loader__"),
        "partial": call(call(name("functools", "partial"), name("builtins", "eval"), code)),
        "reduce": call(name("functools", "reduce"), name("builtins", "eval"), tuple_of(code)),
        "attrgetter": call(call(name("operator", "attrgetter"), text("__globals__")), name("numpy", "dtype")),
        "methodcaller": call(call(name("operator", "methodcaller"), text("touch")), path),
        "a method of a listed class": call(name("pathlib", "PosixPath.touch"), path),
        "a method by getattr": call(call(name("builtins", "getattr"), name("pathlib", "PosixPath"), text("touch")), path),
        "numpy.memmap": call(name("numpy", "memmap"), text(mark), text("u1"), text("w+"), b"K\x00", tuple_of(b"K\x01")),
        "numpy.save": call(name("numpy", "save"), text(mark), b"K\x01"),
        "a method of a numpy class": call(name("numpy", "ndarray.tofile"), text(mark)),
        "the class of a class": call(name("builtins", "object.__class__"), text("Own"), b")", b"}"),
        "type": call(name("builtins", "type"), text("Own"), b")", b"}"),
        "a factory": call(name("collections", "defaultdict"), name("builtins", "eval")),
        "a factory that is an object": call(name("collections", "defaultdict"), partial),
        "another class": with_state(new(simple), dict_of(__class__=namespace)),
        "a class's attribute": with_state(new(namespace), tuple_of(b"N", dict_of(__class__=simple))),
        "what reduces to a call": with_state(new(simple), dict_of(__reduce_ex__=name("builtins", "dict"))),
        "a function as a value": name("numpy._core.multiarray", "scalar"),
        "torch's loader": call(name("torch", "load"), text(mark)),
        "torch's own functions": call(name("torch._utils", "_rebuild_device_tensor_from_numpy"), b"N", b"N", b"N", b"N"),
        "torch.save": call(name("torch", "save"), b"K\x01", text(mark)),
        "a call of what a call returns": call(call(name("collections", "OrderedDict"))),
    }


def spoil(file, place, operations):
    """Puts operations of pickle where the value lies that the keys `place` lead to; () is the whole value."""
    value = torch.load(file, weights_only=False)
    if place:
        holder = value
        for key in place[:-1]:
            holder = holder[key]
        holder[place[-1]] = MARKER
    torch.save(value if place else MARKER, file)
    with zipfile.ZipFile(file) as archive:
        records = [(record, archive.read(record)) for record in archive.namelist()]
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for record, content in records:
            archive.writestr(record, content.replace(text(MARKER), operations) if record.endswith("data.pkl") else content)


def callables_in(value):
    """Returns what could be called, but for classes."""
    inside = []
    if isinstance(value, dict):
        inside = [*value.keys(), *value.values()]
    elif isinstance(value, (list, tuple, set, frozenset, collections.deque)):
        inside = list(value)
    found = [item for one in inside for item in callables_in(one)]
    return found + [value] * (callable(value) and not isinstance(value, (type, torch.Tensor)))


def attempt(mark, read):
    """Returns what a way of reading gives: None where it refuses. Fails where a file's code ran or could run next."""
    try:
        value = read()
    except (deepspeed.DeepSpeedError, AttributeError, KeyError, TypeError, ValueError):  # a tool finds no dict where it wants one
        value = None
    assert not mark.exists() and not pathlib.Path(f"{mark}.npy").exists()
    assert not callables_in(value)
    return value


def convert(folder, to):
    arguments = ["--input_folder", str(folder / "t"), "--output_folder", str(folder / to)]
    ds_to_universal.main(ds_to_universal.parse_arguments(arguments))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Returns (folder of a checkpoint, its engine); each file is as torch.save() writes it."""
    folder = tmp_path_factory.mktemp("saved")
    engine = make({**CONFIG, "zero_optimization": {"stage": 1}, "scheduler": {"type": "WarmupLR"}})[0]
    step(engine)
    engine.save_checkpoint(str(folder), tag="t", client_state={"mine": 1})
    engine.save_16bit_model(str(folder / "weights"))
    ds_to_universal.main(
        ds_to_universal.parse_arguments(["--input_folder", str(folder / "t"), "--output_folder", str(folder / "universal")])
    )
    (folder / "t" / "manifest.json").unlink()
    (folder / "latest_universal").write_text("universal")
    return folder, engine


def restored(saved_folder, copy, operations, relative, place):
    """Copies a checkpoint and spoils one of its files; returns the file."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(saved_folder, copy)
    spoil(copy / relative, place, operations)
    return copy / relative


MODEL = "t/mp_rank_00_model_states.pt"


@pytest.mark.parametrize("attack", attacks("x"))
def test_refuses_an_attack_in_client_state(saved, tmp_path, attack):
    mark = tmp_path / "mark"
    restored(saved[0], tmp_path / "copy", attacks(str(mark))[attack], MODEL, ("mine",))
    before = saved[1].module.weight.detach().clone()
    with pytest.raises(deepspeed.CheckpointError):
        attempt_to_load(saved[1], tmp_path / "copy")
    assert not mark.exists() and torch.equal(before, saved[1].module.weight)


def attempt_to_load(engine, folder):
    client_state = engine.load_checkpoint(str(folder), tag="t")[1]
    raise AssertionError(f"it gave {client_state}")


def places_of(value, depth=2):
    """Returns the keys that lead to each value, the outermost first."""
    if not isinstance(value, dict) or depth == 0:
        return [()]
    return [()] + [(key, *rest) for key, item in value.items() for rest in places_of(item, depth - 1)]


def test_runs_nothing_of_an_attack_anywhere_in_a_checkpoint(saved, tmp_path):
    mark = tmp_path / "mark"
    tried = 0
    for file in sorted((saved[0] / "t").rglob("*.pt")):
        for place in places_of(torch.load(file, weights_only=False)):
            for attack in ("eval of a module's builtins", "exec"):
                relative = file.relative_to(saved[0])
                restored(saved[0], tmp_path / "copy", attacks(str(mark))[attack], relative, place)
                attempt(mark, lambda: saved[1].load_checkpoint(str(tmp_path / "copy"), tag="t")[1])
                tried += 1
    assert tried > 100


def ways(folder, engine):
    """Returns (a file, how it is read) for each other reader."""
    optimizer = "t/" + next((folder / "t").glob("*optim_states.pt")).name
    state = "universal/zero/weight/exp_avg.pt"

    def universal():
        config = {**CONFIG, "zero_optimization": {"stage": 1}, "checkpoint": {"load_universal": True}, "scheduler": {"type": "WarmupLR"}}
        return make(config)[0].load_checkpoint(str(folder))[1]

    def to_universal():
        ds_to_universal.main(
            ds_to_universal.parse_arguments(["--input_folder", str(folder / "t"), "--output_folder", str(folder / "again")])
        )

    def weights():
        return TorchCheckpointEngine().load(str(folder / "weights/pytorch_model.bin"), "cpu")

    def merged():
        return ZeROCheckpoint(str(folder / "t")).get_state_for_rank(0, 0, 0)

    return [
        (state, universal),
        ("universal/mp_rank_00_model_states.pt", universal),
        (MODEL, to_universal),
        (optimizer, to_universal),
        (MODEL, lambda: get_fp32_state_dict_from_zero_checkpoint(str(folder), "t")),
        (optimizer, lambda: get_fp32_state_dict_from_zero_checkpoint(str(folder), "t")),
        (optimizer, lambda: convert_zero_checkpoint_to_fp32_state_dict(str(folder), str(folder / "fp32"), tag="t")),
        (MODEL, lambda: DeepSpeedCheckpoint(str(folder / "t")).get_checkpoint_info("mine")),
        (optimizer, lambda: DeepSpeedCheckpoint(str(folder / "t")).get_zero_checkpoint_state(0, 0, 0)),
        (optimizer, merged),
        (MODEL, lambda: get_model_3d_descriptor(str(folder / "t"))),
        (MODEL, lambda: TorchCheckpointEngine().load(str(folder / MODEL))),
        (optimizer, lambda: TorchCheckpointEngine().load(str(folder / optimizer), lambda storage, location: storage)),
        ("weights/pytorch_model.bin", weights),
        (
            "weights/pytorch_model.bin",
            lambda: engine.load_module_state_dict(weights()),
        ),
    ]


@pytest.mark.parametrize("way", range(15))
def test_runs_nothing_of_an_attack_in_any_other_reader(saved, tmp_path, way):
    mark = tmp_path / "mark"
    relative, read = ways(saved[0], saved[1])[way]
    read()  # as it is
    for operations in attacks(str(mark)).values():
        for place in [(), places_of(torch.load(saved[0] / relative, weights_only=False))[-1]]:
            restored(saved[0], tmp_path / "copy", operations, relative, place)
            attempt(mark, ways(tmp_path / "copy", saved[1])[way][1])


def modules_of_the_tables():
    of_torch = {module for full in torch._weights_only_unpickler._get_allowed_globals() for module in [full.rpartition(".")[0]]}
    made = {module for module, _ in getattr(_objects, "MAKERS", ())}
    return sorted({*_objects._PLAIN, *made, *of_torch, "copyreg"})


def listed_names(module):
    allowed = torch._weights_only_unpickler._get_allowed_globals()
    of_torch = {full.rpartition(".")[2] for full in allowed if full.rpartition(".")[0] == module}
    return of_torch | set(_objects._PLAIN.get(module) or ())


def names_two_levels_deep(module):
    try:
        home = importlib.import_module(module)
    except ImportError:  # of another version of Python or NumPy
        return
    for first in dir(home):
        yield first
        owner = inspect.getattr_static(home, first, None)
        for second in {*dir(type(owner)), *(getattr(owner, "__dict__", None) or {})}:
            yield f"{first}.{second}"


@pytest.mark.filterwarnings("ignore")  # modules that are old
@pytest.mark.parametrize("module", modules_of_the_tables())
def test_returns_only_callables_that_are_listed(module):
    listed, tried, back = listed_names(module), 0, []
    for attribute in names_two_levels_deep(module):
        tried += 1
        try:
            found = _objects.find(module, attribute)
        except deepspeed.CheckpointError:
            continue
        is_member = isinstance(found, enum.Enum) and attribute.rpartition(".")[0] in listed
        if not is_member and (attribute not in listed or (callable(found) and not isinstance(found, type))):
            back.append(attribute)
    assert not back and (tried or module.startswith(("numpy.core", "pathlib._local")))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("module", modules_of_the_tables())
def test_calls_only_what_is_listed(module):
    for attribute in names_two_levels_deep(module):
        if (module, attribute) in _objects.MAKERS or (module, attribute) == ("copyreg", "_reconstructor"):
            continue
        for making in ("call", "new"):
            with pytest.raises(deepspeed.CheckpointError, match="is no safe global"):
                _objects.build(module, attribute, None, making, (), {}, None, [], [])


def test_lists_no_name_with_a_dot_or_out_of_its_module():
    for module, names in [*_objects._PLAIN.items(), *((module, [name]) for module, name in _objects.MAKERS)]:
        for one in names:
            assert "." not in one and not one.startswith("__"), (module, one)
    for module, names in _objects._PLAIN.items():
        home = sys.modules.get(module)
        assert all(isinstance(_objects.find(module, one), type) for one in names if hasattr(home, one))


RANGE = call(name("builtins", "range"), number(10**8))
NINES = "9" * 4400
DTYPE = with_state(
    call(name("numpy", "dtype"), text("f8"), b"\x89", b"\x88"), tuple_of(b"K\x03", text("<"), b"NNN", number(-1), number(-1), b"K\x00")
)
OBJECTS = call(name("numpy", "dtype"), text("O8"), b"\x89", b"\x88")
RECORD = with_state(
    call(name("numpy", "dtype"), text("V8"), b"\x89", b"\x88"),
    tuple_of(b"K\x03", text("|"), b"N", tuple_of(text("a")), dict_of(a=tuple_of(OBJECTS, b"K\x00")), b"K\x08", b"K\x01", b"K\x00"),
)
LONG_TEXT = call(name("numpy", "dtype"), text("U100000000"))
EIGHT_BYTES = call(name("_codecs", "encode"), text("abcdefgh"), text("latin1"))


def array(shape, dtype, content, subtype=name("numpy", "ndarray")):
    made = call(name("numpy._core.multiarray", "_reconstruct"), subtype, tuple_of(b"K\x00"), text("b"))
    return with_state(made, tuple_of(b"K\x01", shape, dtype, b"\x89", content))


BOMBS = {
    **{kind: call(name("builtins", kind), RANGE) for kind in ("list", "set", "tuple", "frozenset", "dict", "bytearray", "bytes", "str")},
    **{kind: call(name("collections", kind), RANGE) for kind in ("Counter", "deque", "OrderedDict")},
    "bytearray of a size": call(name("builtins", "bytearray"), number(6 << 30)),
    "bytes of a size": call(name("builtins", "bytes"), number(6 << 30)),
    "a fraction": call(name("fractions", "Fraction"), text("1e30000000")),
    "a fraction of many digits": call(name("fractions", "Fraction"), text(NINES)),
    "a fraction of long numbers": call(name("fractions", "Fraction"), number(7**90000), number(3**90000)),
    "an int of a text": call(name("builtins", "int"), text("9" * 4200)),
    "a decimal of an int": call(name("decimal", "Decimal"), number(7**90000)),
    "a repeated text": call(name("_operator", "mul"), text("x"), number(10**9)),
    "a sum of no flags": call(name("_operator", "or_"), number(1 << 4000), number(1)),
    "a union of dicts": call(name("_operator", "or_"), b"}", b"}"),
    "an array without its content": call(name("numpy", "ndarray"), tuple_of(number(10**10))),
    "an array of another shape": call(name("numpy._core.multiarray", "_reconstruct"), name("numpy", "ndarray"), number(10**10), text("b")),
    "an array with a large shape": array(tuple_of(number(10**10)), DTYPE, EIGHT_BYTES),
    "an array with a negative shape": array(tuple_of(number(-1), number(-1)), DTYPE, EIGHT_BYTES),
    "objects of bytes": array(tuple_of(b"K\x01"), OBJECTS, EIGHT_BYTES),
    "objects in records of bytes": array(tuple_of(b"K\x01"), RECORD, EIGHT_BYTES),
    "too few objects": array(tuple_of(number(10**10)), OBJECTS, b"]"),
    "a buffer of another size": call(name("numpy._core.numeric", "_frombuffer"), EIGHT_BYTES, DTYPE, tuple_of(number(10**9)), text("C")),
    "a buffer of objects": call(name("numpy._core.numeric", "_frombuffer"), EIGHT_BYTES, OBJECTS, tuple_of(b"K\x01"), text("C")),
    "a scalar of objects": call(name("numpy._core.multiarray", "scalar"), OBJECTS, EIGHT_BYTES),
    "a scalar of another size": call(
        name("numpy._core.multiarray", "scalar"), call(name("numpy", "dtype"), text("U100000000")), EIGHT_BYTES
    ),
    "a list of what no tuple holds": call(name("copyreg", "_reconstructor"), name("builtins", "list"), name("builtins", "list"), RANGE),
    "an encoding": call(name("_codecs", "encode"), text("a" * 1000), text("punycode")),
    "a path of a range": call(name("pathlib", "PosixPath"), RANGE),
    "attributes that are none": with_state(new(name("argparse", "Namespace")), RANGE),
    "a deque that is filled with a range": call(name("collections", "deque"), RANGE, b"N"),
    "an unbounded sparse tensor": call(name("torch._utils", "_rebuild_sparse_tensor"), b"N", b"N"),
    "a tensor of a size": call(name("torch", "FloatTensor"), number(10**10)),
    "a tensor that is made new": new(name("torch", "FloatTensor"), number(10**10)),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_refuses_what_makes_much_of_few_bytes(saved, tmp_path, bomb):
    restored(saved[0], tmp_path / "copy", BOMBS[bomb], MODEL, ("mine",))
    with pytest.raises(deepspeed.CheckpointError):
        attempt_to_load(saved[1], tmp_path / "copy")


def test_loads_ranges_and_long_numbers(saved, tmp_path):
    for operations, value in ((RANGE, range(10**8)), (number(7**90000), 7**90000), (RECORD, numpy.dtype([("a", "O")]))):
        restored(saved[0], tmp_path / "copy", operations, MODEL, ("mine",))
        assert saved[1].load_checkpoint(str(tmp_path / "copy"), tag="t")[1]["mine"] == value


class Own:
    def __init__(self, value):
        self.value = value


class Words(list):
    pass


class Flags(enum.Flag):
    A = 1
    B = 2


class Old(list):
    """Is pickled as protocol 1 does it."""

    def __reduce_ex__(self, protocol):
        return copyreg._reduce_ex(self, 1)


def counts_from(start):
    return types.SimpleNamespace(start=start)


class ByFunction:
    def __reduce_ex__(self, protocol):
        return counts_from, (3,), {"step": 2}


VALUES = {
    "attributes": Own([1]),
    "a list": Words([1, "a"]),
    "flags": Flags.A | Flags.B,
    "an older protocol": Old([1, 2]),
    "a default": collections.defaultdict(Words, {1: Words([2])}),
    "a zone": datetime.datetime(2020, 1, 2, tzinfo=datetime.timezone(datetime.timedelta(hours=2), "x")),
    "records": numpy.array([("a", 1), (None, 2)], dtype=[("o", "O"), ("n", "i4")]),
    "big ends": numpy.arange(3, dtype=">i2"),
    "times": numpy.array(["2020-01-01", "2021-02-03"], dtype="M8[3D]"),
    "columns": numpy.asfortranarray(numpy.arange(6.0).reshape(2, 3)),
    "texts": numpy.array(["a", "bcd"]),
    "scalars": [numpy.float64(0.5), numpy.str_("ab"), numpy.datetime64("2020-01-01"), numpy.void(b"ab")],
    "dtypes": [numpy.dtype("f4"), numpy.dtype([("a", "u1"), ("b", "f8")], align=True), numpy.dtype(("f4", (2, 3)))],
    "a sparse tensor": torch.eye(3).to_sparse(),
    "a sparse tensor in rows": torch.eye(3).to_sparse_csr(),
}


@pytest.mark.parametrize("protocol", [2, 5])
@pytest.mark.parametrize("what", VALUES)
def test_loads_what_pickle_writes_of_known_classes(saved, tmp_path, what, protocol):
    value = VALUES[what]
    file = restored(saved[0], tmp_path / "copy", b"N", MODEL, ("mine",))
    torch.save({**torch.load(file, weights_only=False), "mine": value}, file, pickle_protocol=protocol)
    with torch.serialization.safe_globals([Own, Words, Flags, Old]):
        found = saved[1].load_checkpoint(str(tmp_path / "copy"), tag="t")[1]["mine"]
    assert type(found) is type(value)
    if isinstance(value, torch.Tensor):
        assert torch.equal(found.to_dense(), value.to_dense()) and found.layout == value.layout
    elif isinstance(value, numpy.ndarray):
        assert found.dtype == value.dtype and found.tolist() == value.tolist() and found.flags.f_contiguous == value.flags.f_contiguous
    elif isinstance(value, Own):
        assert vars(found) == vars(value)
    else:
        assert found == value


def test_refuses_state_for_a_listed_class_from_the_programs_function(saved, tmp_path):
    file = restored(saved[0], tmp_path / "copy", b"N", MODEL, ("mine",))
    torch.save({**torch.load(file, weights_only=False), "mine": ByFunction()}, file)
    with (
        torch.serialization.safe_globals([counts_from]),
        pytest.raises(deepspeed.CheckpointError, match="SimpleNamespace.* is given a state"),
    ):
        saved[1].load_checkpoint(str(tmp_path / "copy"), tag="t")


def test_makes_what_pickle_makes_if_the_user_trusts_all_files(saved, tmp_path, monkeypatch):
    mark = tmp_path / "mark"
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    operations = attacks(str(mark))["eval"]
    restored(saved[0], tmp_path / "copy", operations, MODEL, ("mine",))
    assert saved[1].load_checkpoint(str(tmp_path / "copy"), tag="t")[1]["mine"] is None and mark.exists()
    mark.unlink()
    assert TorchCheckpointEngine().load(str(tmp_path / "copy" / MODEL))["mine"] is None and mark.exists()
