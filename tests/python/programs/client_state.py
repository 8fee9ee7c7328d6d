"""Saves objects of many kinds as client state, and compares what a load gives back."""

import argparse
import collections
import dataclasses
import datetime
import decimal
import json
import logging
import pathlib
import random
import sys

import numpy
import torch

import deepspeed


@dataclasses.dataclass
class Progress:
    epoch: int
    names: list


class Point(collections.namedtuple("Point", "x y")):
    pass


def values():
    random.seed(3)
    return {
        "plain": {"a": 1, "b": [1.5, None, True, "text"], 3: (1, 2), "nested": {"t": torch.arange(3)}},
        "big": 2**100,
        "negative": -(2**70),
        "complex": 1 + 2j,
        "bytes": b"\x00\xff",
        "bytearray": bytearray(b"abc"),
        "frozen": frozenset({1, 2}),
        "set": {1, 2},
        "array": numpy.arange(6, dtype=numpy.float32).reshape(2, 3),
        "scalar": numpy.float64(0.25),
        "numpy_state": numpy.random.RandomState(1).get_state(),
        "python_state": random.getstate(),
        "torch_state": torch.get_rng_state(),
        "device": torch.device("cpu"),
        "dtype": torch.bfloat16,
        "size": torch.Size([2, 3]),
        "namespace": argparse.Namespace(lr=0.1, path=pathlib.PurePosixPath("a/b")),
        "counter": collections.Counter("abca"),
        "ordered": collections.OrderedDict([("z", 1), ("a", 2)]),
        "default": collections.defaultdict(list, {"k": [1]}),
        "deque": collections.deque([1, 2], maxlen=4),
        "date": datetime.datetime(2020, 1, 2, 3, 4, 5),
        "decimal": decimal.Decimal("1.25"),
    }


def are_equal(a, b):
    if isinstance(a, torch.Tensor) or isinstance(a, numpy.ndarray):
        return type(a) is type(b) and a.dtype == b.dtype and bool((a == b).all())
    if isinstance(a, dict):
        return type(a) is type(b) and list(a) == list(b) and all(are_equal(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(are_equal, a, b))
    return type(a) is type(b) and a == b


def main():
    folder = json.loads(sys.argv[1])["folder"]
    model = torch.nn.Linear(2, 2)
    config = {"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "Adam", "params": {"lr": 0.1}}}
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    saved = values()
    engine.save_checkpoint(folder, tag="all", client_state=saved)
    _, loaded = engine.load_checkpoint(folder, tag="all")
    wrong = [key for key in saved if not are_equal(saved[key], loaded.get(key))]
    assert not wrong, [(key, saved[key], loaded.get(key)) for key in wrong]

    read = torch.load(folder + "/all/mp_rank_00_model_states.pt", weights_only=False)
    wrong = [key for key in saved if not are_equal(saved[key], read.get(key))]
    assert not wrong, [(key, saved[key], read.get(key)) for key in wrong]

    engine.save_checkpoint(folder, tag="own", client_state={"progress": Progress(2, ["a"]), "point": Point(1, 2)})
    try:
        engine.load_checkpoint(folder, tag="own")
    except deepspeed.CheckpointError as error:
        assert "add_safe_globals" in str(error), error
    else:
        raise AssertionError("a class of the script was made without asking")
    torch.serialization.add_safe_globals([Progress, Point])
    _, loaded = engine.load_checkpoint(folder, tag="own")
    assert loaded["progress"] == Progress(2, ["a"]) and loaded["point"] == Point(1, 2)

    cycle = []
    cycle.append(cycle)
    for value, text in ((lambda: 1, "no name"), (cycle, "holding itself"), (open(__file__), "cannot stand in a checkpoint")):
        try:
            engine.save_checkpoint(folder, tag="refused", client_state={"mine": value})
        except TypeError as error:
            assert "client_state.mine" in str(error) and text in str(error), error
        else:
            raise AssertionError(f"{value} was saved")

    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append((record.levelname, record.getMessage()))
    deepspeed.logger.addHandler(handler)
    deepspeed.logger.setLevel("INFO")
    engine.save_checkpoint(folder, tag="logged")
    assert any(level == "INFO" and "logged" in line for level, line in lines), lines
    print('RESULT {"passed": true}')


if __name__ == "__main__":
    main()
