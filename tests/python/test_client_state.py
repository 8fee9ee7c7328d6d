"""Any object of Python stands in client_state; classes that are no safe globals are made again only on demand."""

import collections
import enum
import logging
import operator
import pathlib

import pytest
import torch

import deepspeed
from launching import run


def test_returns_objects(tmp_path):
    run("client_state.py", {"folder": str(tmp_path)}, ranks=1)


class Own:
    pass


class Color(enum.Enum):
    RED = 1


class ByName(enum.Enum):
    """As every enumeration is in Python 3.11.2."""

    RED = 1

    def __reduce_ex__(self, protocol):
        return getattr, (type(self), self.name)


class FlagsByName(enum.Flag):
    A = 1
    B = 2

    def __reduce_ex__(self, protocol):
        if self == FlagsByName.A | FlagsByName.B:
            return operator.or_, (FlagsByName.B, FlagsByName.A)
        return getattr, (type(self), self.name)


class CallsGetattr:
    def __init__(self, *arguments):
        self.arguments = arguments

    def __reduce_ex__(self, protocol):
        return getattr, self.arguments


def own_function():
    pass


CONFIG = {"train_micro_batch_size_per_gpu": 1, "zero_allow_untested_optimizer": True}


def save(folder, caplog, model=None, client_state={}, **more):
    """Returns (what a save warns of, the engine)."""
    model = torch.nn.Linear(2, 2) if model is None else model
    config = CONFIG if "optimizer" in more else {**CONFIG, "optimizer": {"type": "Adam"}}
    engine = deepspeed.initialize(model=model, model_parameters=model.parameters(), config={**config, **more.pop("config", {})}, **more)[0]
    for value in (1.0, 2.0):
        engine.backward(engine(torch.full((1, 2), value)).sum())
        engine.step()
    deepspeed.utils.logging.warning_once.cache_clear()
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger=deepspeed.logger.name):
        deepspeed.logger.addHandler(caplog.handler)
        try:
            engine.save_checkpoint(str(folder), tag="saved", client_state=client_state)
        finally:
            deepspeed.logger.removeHandler(caplog.handler)
    return [record.getMessage() for record in caplog.records], engine


@pytest.mark.parametrize(
    "value, name",
    [
        (Own(), "Own"),
        (Own, "Own"),
        (own_function, "own_function"),
        (Color.RED, "Color"),
        (ByName.RED, "ByName"),
        (FlagsByName.A | FlagsByName.B, "FlagsByName"),
        (collections.defaultdict(Own), "Own"),
    ],
)
def test_warns_at_the_save_of_what_the_load_refuses(tmp_path, caplog, value, name):
    lines, engine = save(tmp_path, caplog, client_state={"fine": 1, "mine": [value]})
    full = f"{__name__}.{name}"
    assert len(set(lines)) == 1 and "client_state.mine[0]" in lines[0] and f"{full} is saved" in lines[0], lines
    assert f"add_safe_globals([{name}])" in lines[0]
    with pytest.raises(deepspeed.CheckpointError, match=f"{full}, which is no safe global"):
        engine.load_checkpoint(str(tmp_path), tag="saved")


@pytest.mark.parametrize(
    "value", [1, {"a": (1.5, None)}, torch.ones(2), torch.float16, collections.Counter("ab"), pathlib.PurePosixPath("a")]
)
def test_saves_what_loads_without_a_warning(tmp_path, caplog, value):
    lines, engine = save(tmp_path, caplog, client_state={"mine": value})
    assert not lines
    assert "mine" in engine.load_checkpoint(str(tmp_path), tag="saved")[1]


def load_pickled(folder, caplog, value):
    """Returns what load_checkpoint() makes of a value that Python's own pickle wrote, as DeepSpeed has it write."""
    _, engine = save(folder, caplog)
    (folder / "saved" / "manifest.json").unlink()
    file = folder / "saved" / "mp_rank_00_model_states.pt"
    torch.save({**torch.load(file, weights_only=False), "mine": value}, file)
    return engine.load_checkpoint(str(folder), tag="saved")[1]["mine"]


def test_loads_enum_members_that_python_3_11_2_pickled_by_name(tmp_path, caplog):
    for value, name in ((ByName.RED, "ByName.RED"), (FlagsByName.A | FlagsByName.B, "FlagsByName.[AB]")):
        advice = rf"{name}, which is no safe global.*add_safe_globals\(\[{type(value).__name__}\]\)"
        with pytest.raises(deepspeed.CheckpointError, match=advice):
            load_pickled(tmp_path, caplog, value)
        with torch.serialization.safe_globals([type(value)]):
            assert load_pickled(tmp_path, caplog, value) == value


def test_refuses_attributes_of_a_safe_class_that_are_no_members(tmp_path, caplog):
    with torch.serialization.safe_globals([ByName]):
        for name in ("mro", "__reduce_ex__", "BLUE"):
            with pytest.raises(deepspeed.CheckpointError, match=rf"ByName.{name}, which is no safe.*globals\(\[ByName.{name}\]\)"):
                load_pickled(tmp_path, caplog, CallsGetattr(ByName, name))


def test_returns_texts_with_lone_surrogates(tmp_path, caplog):
    text = "a\udc80b\ud83d"
    _, engine = save(tmp_path, caplog, client_state={"note": text, text: [text]})
    state = engine.load_checkpoint(str(tmp_path), tag="saved")[1]
    assert state["note"] == text and state[text] == [text]
    assert load_pickled(tmp_path, caplog, {text: text}) == {text: text}
    read = torch.load(tmp_path / "saved" / "mp_rank_00_model_states.pt", weights_only=False)
    assert read["mine"] == {text: text}


def test_leaves_all_engines_unchanged_if_one_rank_refuses_a_load(tmp_path):
    run("failed_load.py", {"folder": str(tmp_path)}, ranks=2)


class WithExtraState(torch.nn.Linear):
    def get_extra_state(self):
        return {"scale": 1}

    def set_extra_state(self, state):
        raise AssertionError("it was not saved")


class SgdWithMemory(torch.optim.SGD):
    def step(self, closure=None):
        super().step(closure)
        for group in self.param_groups:
            for param in group["params"]:
                self.state[param].update(sum=torch.zeros_like(param), own=Own())


class ScheduleWithMemory:
    def __init__(self, optimizer):
        self.own = None

    def step(self):
        pass

    def state_dict(self):
        return {"own": self.own, "steps": 1}

    def load_state_dict(self, state):
        pass


def test_warns_of_what_module_and_optimizer_keep_besides_tensors(tmp_path, caplog):
    lines, _ = save(tmp_path, caplog, model=torch.nn.Sequential(torch.nn.Linear(2, 2), WithExtraState(2, 2)))
    assert len(lines) == 1 and "1: what get_extra_state() of WithExtraState returns is not saved" in lines[0], lines
    model = torch.nn.Linear(2, 2)
    lines, _ = save(tmp_path, caplog, model=model, optimizer=SgdWithMemory(model.parameters(), lr=0.1))
    assert len(lines) == 1 and "SgdWithMemory: the state 'own' is no number and no tensor but a Own" in lines[0], lines


def test_names_a_schedule_with_an_object_of_its_own_at_the_save(tmp_path, caplog):
    _, engine = save(tmp_path, caplog, lr_scheduler=ScheduleWithMemory)
    engine.lr_scheduler.own = Own()
    with pytest.raises(TypeError, match="lr_scheduler.own: got .*Own.*, expected what JSON has"):
        engine.save_checkpoint(str(tmp_path), tag="again")
