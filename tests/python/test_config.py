"""What a script reads of a config without an engine: DeepSpeedConfig, getters, constants, HJSON."""

import argparse
import ast
import base64
import io
import logging
import pathlib
import re
import sys
import types

import pytest
import torch

import deepspeed
from deepspeed import _core
from deepspeed.runtime import config as config_names, constants
from deepspeed.runtime.sparse_tensor import SparseTensor

CONFIG = {"train_batch_size": 4, "optimizer": {"type": "Adam", "params": {"lr": 0.5}}}


def test_shows_keys_and_sections_of_a_config():
    config = deepspeed.DeepSpeedConfig({**CONFIG, "zero_optimization": {"stage": 2}})
    assert (config.train_batch_size, config.train_micro_batch_size_per_gpu, config.gradient_accumulation_steps) == (4, 4, 1)
    assert (config.zero_optimization_stage, config.zero_enabled, config.optimizer_name) == (2, True, "Adam")
    assert config.optimizer_params == {"lr": 0.5} and config.scheduler_name is None
    assert config.zero_config.stage == 2 and not config.bfloat16_config.enabled and not config.float16_config.enabled
    with pytest.raises(AttributeError, match="no_such_key"):
        config.no_such_key


def test_reads_a_config_with_features_that_do_not_exist():
    given = {
        **CONFIG,
        "autotuning": {"enabled": True},
        "compression_training": {"weight_quantization": {"shared_parameters": {"enabled": True}}},
    }
    config = deepspeed.DeepSpeedConfig(given)
    assert config.autotuning["enabled"] is True and config.eigenvalue_enabled is False
    assert config.compression_training["weight_quantization"]["shared_parameters"]["enabled"] is True
    model = torch.nn.Linear(2, 2)
    with pytest.raises(deepspeed.runtime.config.DeepSpeedConfigError, match="not supported yet"):
        deepspeed.initialize(model=model, model_parameters=model.parameters(), config=given)


@pytest.mark.parametrize("stage, idle", [(0, ["offload_param", "offload_optimizer"]), (2, ["offload_param"]), (3, [])])
def test_warns_of_offload_that_the_stage_lacks_and_leaves_it_out(stage, idle, caplog):
    model = torch.nn.Linear(2, 2)
    zero = {"stage": stage, "offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "cpu"}}
    config = {**CONFIG, "zero_force_ds_cpu_optimizer": False, "zero_optimization": zero}
    with caplog.at_level(logging.WARNING, logger=deepspeed.logger.name):
        engine = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]
    said = [record.getMessage() for record in caplog.records if "has no effect at stage" in record.getMessage()]
    assert [line.split()[1] for line in said] == [f"zero_optimization.{key}" for key in idle]
    devices = engine.zero_offload_param_device(), engine.zero_offload_optimizer_device()
    assert devices == ("cpu" if stage == 3 else "none", "none" if stage == 0 else "cpu")


def test_warns_of_keys_that_an_optimizer_lacks_and_leaves_them_out(caplog):
    with caplog.at_level(logging.WARNING, logger=deepspeed.logger.name):
        config = deepspeed.DeepSpeedConfig({**CONFIG, "optimizer": {"type": "Adam", "params": {"lr": 0.5}, "torch_adam": True}})
    assert config.optimizer_params == {"lr": 0.5}
    assert "'optimizer' has unknown keys, which are ignored: 'torch_adam'" in caplog.text


def test_refuses_summed_gradients_with_some_features():
    for more, words in (
        ({"zero_optimization": {"stage": 3}}, "not supported with ZeRO stage 3"),
        ({"zero_optimization": {"stage": 2, "zenflow": {}}}, "not supported with ZenFlow"),
        ({"compile": {"deepcompile": True}}, "not supported with DeepCompile"),
    ):
        with pytest.raises(ValueError, match=words):
            deepspeed.DeepSpeedConfig({**CONFIG, "gradient_allreduce_op": "sum", **more})


def test_computes_batch_sizes_from_each_other():
    config = deepspeed.DeepSpeedConfig(CONFIG)
    config.train_batch_size, config.train_micro_batch_size_per_gpu, config.gradient_accumulation_steps = 12, None, 3
    config._configure_train_batch_size()
    assert config.train_micro_batch_size_per_gpu == 4
    config.train_batch_size = 13
    with pytest.raises(AssertionError, match="train_batch_size"):
        config._configure_train_batch_size()


def test_returns_the_cores_defaults_from_getters_and_constants():
    assert config_names.get_gradient_clipping({}) == constants.GRADIENT_CLIPPING_DEFAULT == 1.0
    assert config_names.get_gradient_clipping({"gradient_clipping": 0.5}) == 0.5
    assert constants.TRAIN_BATCH_SIZE == "train_batch_size" and config_names.ADAM_OPTIMIZER == "adam"
    with pytest.raises(AttributeError, match="get_no_such_key"):
        config_names.get_no_such_key
    with pytest.raises(AttributeError, match="NO_SUCH_KEY"):
        constants.NO_SUCH_KEY


COMMENTED = """{
  "train_batch_size": 4,  // what the README shows
  /* a section */
  "zero_optimization": {"stage": 3},
  "optimizer": {"type": "Adam", "params": {"lr": 0.5}},  # and a trailing comma
}"""


def given_in_each_way(text, folder):
    """Yields what a script may give for the text of a config."""
    path = folder / "config.json"
    path.write_text(text)
    yield from (path, str(path), text, base64.urlsafe_b64encode(text.encode()).decode())
    yield open(path)
    yield open(path, "rb")


def test_accepts_the_cores_comments_in_every_reader(tmp_path):
    for given in given_in_each_way(COMMENTED, tmp_path):
        config = deepspeed.DeepSpeedConfig(given)
        assert (config.train_batch_size, config.zero_optimization_stage) == (4, 3), given
    path = str(tmp_path / "config.json")
    with deepspeed.zero.Init(config_dict_or_path=path):
        model = torch.nn.Linear(2, 2)
    args = argparse.Namespace(deepspeed_config=path)
    engine = deepspeed.initialize(args=args, model=model, model_parameters=model.parameters())[0]
    assert engine.train_batch_size() == 4
    deepspeed.checkpointing.configure(None, deepspeed_config=path)


def test_reports_a_fault_in_a_text_in_the_cores_words(tmp_path):
    faults = (
        ('{"train_batch_size": 4,\n "fp16": {"enabled": true, "enabled": false}}', "line 2 column 36: the key fp16.enabled is given twice"),
        ('{"train_batch_size": Infinity}', "line 1 column 22: train_batch_size: got Infinity, which JSON does not have"),
        ("{" + '"a": {' * 70 + "}" * 71, "nested too deep"),
        ('{"train_batch_size": 4 /* }', "comment"),
    )
    for text, words in faults:
        for given in given_in_each_way(text, tmp_path):
            with pytest.raises(deepspeed.runtime.config.DeepSpeedConfigError, match=re.escape(words)):
                deepspeed.DeepSpeedConfig(given)
    for given in (str(tmp_path / "missing.json"), "[1]", io.StringIO("[1]"), 3):
        with pytest.raises(deepspeed.runtime.config.DeepSpeedConfigError, match="expected"):
            deepspeed.DeepSpeedConfig(given)


HJSON = "{\n  # a comment\n  train_batch_size: 2\n}"


def test_asks_for_the_package_of_hjson(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "hjson", None)
    for given in given_in_each_way(HJSON, tmp_path):
        with pytest.raises(ValueError, match="line 3 column 5: syntax error.*install the package hjson"):
            deepspeed.DeepSpeedConfig(given)


def test_reads_by_hjson_what_is_no_json(tmp_path, monkeypatch):
    def loads(text, object_pairs_hook):
        if text != HJSON:
            raise ValueError("bad HJSON")
        return object_pairs_hook([("train_batch_size", 2)])

    monkeypatch.setitem(sys.modules, "hjson", types.SimpleNamespace(loads=loads))
    for given in given_in_each_way(HJSON, tmp_path):
        assert deepspeed.DeepSpeedConfig(given).train_batch_size == 2
    for given in given_in_each_way("{train_batch_size: 2,,}", tmp_path):
        with pytest.raises(ValueError, match="line 1 column 4: syntax error.*; nor is it HJSON: bad HJSON"):
            deepspeed.DeepSpeedConfig(given)


def test_logs_at_deepspeeds_levels():
    assert deepspeed.logger.getEffectiveLevel() == logging.WARNING
    model = torch.nn.Linear(2, 2)
    engine = deepspeed.initialize(model=model, model_parameters=model.parameters(), config={**CONFIG, "log_level": "error"})[0]
    try:
        assert engine.log_level() == "error" and deepspeed.logger.getEffectiveLevel() == logging.ERROR
    finally:
        deepspeed.logger.setLevel(logging.WARNING)


def test_holds_nonzero_rows_in_sparse_tensors():
    dense = torch.tensor([[0.0, 0.0], [1.0, -1.0], [2.0, 0.0]])
    sparse = SparseTensor(dense)
    assert sparse.indices.tolist() == [1, 2]
    sparse.add(SparseTensor(dense))
    assert torch.equal(sparse.to_dense(), 2 * dense) and torch.equal(sparse.to_coo_tensor().to_dense(), 2 * dense)


def test_imports_names_of_the_package_on_first_use():
    assert deepspeed.checkpointing.checkpoint and deepspeed.OnDevice
    for name in ("init_inference", "tp_model_init", "InferenceEngine"):
        with pytest.raises(NotImplementedError, match="is not supported: "):
            getattr(deepspeed, name)(None)
    assert not hasattr(deepspeed, "no_such_name")


def test_lists_the_compiled_module_in_the_stub():
    named = {}  # {function or "class.function": its arguments}
    classes = {}
    for node in ast.parse(pathlib.Path(deepspeed.__file__).resolve().with_name("_core.pyi").read_text()).body:
        if isinstance(node, ast.ClassDef):
            members = [part for part in node.body if isinstance(part, ast.FunctionDef)]
            classes[node.name] = {part.name for part in members}
            named |= {f"{node.name}.{part.name}": [argument.arg for argument in part.args.args] for part in members}
        elif isinstance(node, ast.FunctionDef):
            named[node.name] = [argument.arg for argument in node.args.args]
    for name in (name for name in dir(_core) if not name.startswith("_")):
        made = getattr(_core, name)
        if not isinstance(made, type):
            assert named.get(name) == arguments_of(made), f"_core.pyi: {name} has other arguments than in the module"
            continue
        members = {part for part in vars(made) if not part.startswith("_")}
        assert members == {part for part in classes.get(name, ()) if not part.startswith("_")}, f"_core.pyi: {name} has other members"
        for member in members | ({"__init__"} & classes[name]):
            if not isinstance(vars(made)[member], property):
                found = arguments_of(getattr(made, member))
                assert named[f"{name}.{member}"] == found, f"_core.pyi: {name}.{member} has other arguments"
    assert classes.keys() | named.keys() <= {*dir(_core), *(name for name in named if "." in name)}


def arguments_of(function):
    """Returns the names that stand in the signature that pybind11 has written: "f(engine: ..., group: ...) -> ..."."""
    signature = function.__doc__.splitlines()[0]
    return re.findall(r"[(,] ?(\w+): ", signature)


def test_names_a_file_without_an_object(tmp_path):
    path = tmp_path / "config.json"
    path.write_text("[1]")
    for read in (deepspeed.DeepSpeedConfig, lambda file: deepspeed.initialize(model=torch.nn.Linear(2, 2), config=file)):
        with pytest.raises(ValueError, match=rf"{path}: got \[1\], expected a JSON object"):
            read(str(path))


@pytest.mark.parametrize("value, words", [(10**400, "lr: got an integer of 1329 bits"), ("\ud800", "lr: got the text .*ud800.*UTF-8")])
def test_names_the_key_of_what_no_config_can_hold(value, words):
    with pytest.raises(ValueError, match=words):
        deepspeed.DeepSpeedConfig({**CONFIG, "optimizer": {"type": "Adam", "params": {"lr": value}}})


def test_refuses_a_config_that_nests_deeply():
    deep = {}
    for _ in range(250):
        deep = {"a": deep}
    with pytest.raises(ValueError, match="optimizer.params.a.a.*nested deeper than 190 levels"):
        deepspeed._core.read_config({"optimizer": {"params": deep}}, 1)
