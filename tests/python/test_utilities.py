"""Names beside the engine: groups, the log of collectives, timers, descriptions of checkpoints, ds_report."""

import argparse
import importlib
import os
import pathlib
import re
import subprocess
import sys
import types

import numpy
import pytest
import torch

import deepspeed
import deepspeed.comm as dist
from deepspeed._absent_names import refused_names
from deepspeed.checkpoint import DeepSpeedCheckpoint, ZeROCheckpoint, get_model_3d_descriptor, model_3d_desc
from deepspeed.checkpoint.utils import read_state
from deepspeed.runtime.checkpoint_engine.torch_checkpoint_engine import TorchCheckpointEngine
from deepspeed.runtime.fp16.loss_scaler import LossScaler
from deepspeed.runtime.zero.config import ZeroStageEnum
from deepspeed.utils import groups
from deepspeed.utils.timer import SynchronizedWallClockTimer, trim_mean
from launching import run


@pytest.fixture(autouse=True)
def world():
    deepspeed.init_distributed()


def test_each_rank_holds_the_whole_model():
    assert groups._get_data_parallel_world_size() == dist.get_world_size() == 1
    assert groups.get_tensor_model_parallel_world_size() == groups._get_sequence_parallel_world_size() == 1
    assert groups._get_data_parallel_group() is groups._get_data_parallel_group()
    with pytest.raises(AssertionError, match="1 is not divisible by 2"):
        groups._create_expert_and_data_parallel(2)


def test_expert_groups_cut_data_parallel_groups():
    runs, same = groups._get_expert_parallel_ranks(8, 2, 2)
    assert runs == [[0, 2], [4, 6], [1, 3], [5, 7]] and same == [[0, 4], [2, 6], [1, 5], [3, 7]]
    runs, _ = groups._get_expert_parallel_ranks(8, 1, 2, use_data_before_expert_parallel_=True)
    assert runs == [[0, 4], [1, 5], [2, 6], [3, 7]]


def test_expert_groups_are_made_by_name_and_the_engine_refuses_shared_out_experts():
    found = run("expert_groups.py")
    assert found["sizes"] == [2, 1] and found["ranks"] == [[0, 1], [0]] and found["norm"] == pytest.approx(1.5**0.5)
    assert "'1.weight' belongs to an expert of the group 'ep_size_2', whose 2 ranks hold other experts each" in found["refusal"]
    assert found["trained_with_whole_experts"]
    with pytest.raises(AssertionError, match="'ep_size_7' is not initialized"):
        groups._get_expert_parallel_group("ep_size_7")


def test_collectives_of_scripts_are_logged_while_the_log_is_on(capsys):
    tensor = torch.ones(256)
    dist.all_reduce(tensor)
    assert not dist.has_comm_data()
    dist.log_summary()
    assert '{"comms_logger": {"enabled": true}} in the config' in capsys.readouterr().out
    dist.configure(enabled=True)
    try:
        dist.all_reduce(tensor)
        dist.broadcast(tensor, 0, log_name="weights")
        dist.configure(prof_all=False, prof_ops=["weights"])
        dist.all_reduce(tensor)
        dist.broadcast(tensor, src=0, log_name="weights")
        summary = dist.log_summary(show_straggler=True, return_dict=True)["summary"]
    finally:
        dist.configure(enabled=False, prof_all=True, prof_ops=[])
    assert {name: sizes[1024]["count"] for name, sizes in summary.items()} == {"all_reduce": 1, "weights": 2}
    assert "weights" in capsys.readouterr().out
    dist.reset_log()
    assert dist.get_comm_operation_count() == 0


def test_timers_add_up_and_leave_lists_as_they_are():
    timer = SynchronizedWallClockTimer()("step")
    for _ in range(2):
        timer.start()
        timer.stop()
    assert len(timer.elapsed_records) == 2 and timer.elapsed(reset=True) > 0 and timer.elapsed() == 0
    values = [9.0, 1.0, 2.0, 3.0, 0.0]
    assert trim_mean(values, 0.2) == 2.0 and values == [9.0, 1.0, 2.0, 3.0, 0.0]


def test_a_checkpoint_of_an_engine_is_described(tmp_path):
    model = torch.nn.Linear(3, 2)
    config = {"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "Adam"}, "zero_optimization": {"stage": 1}}
    engine = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]
    engine.save_checkpoint(tmp_path, tag="a", client_state={"iteration": 7, "universal_checkpoint_info": {"source": "script"}})
    described = DeepSpeedCheckpoint(str(tmp_path / "a"))
    assert get_model_3d_descriptor(str(tmp_path / "a")).get_desc() == "PP,TP,DP = (1, 1, 1)"
    assert described.get_iteration() == 7 and described.get_checkpoint_info("universal_checkpoint_info") == {"source": "script"}
    state = described.get_zero_checkpoint_state(0, 0, 0)["optimizer_state_dict"]
    assert torch.equal(state["single_partition_of_fp32_groups"][0][:6], model.weight.detach().reshape(-1))


def test_degrees_contract_to_fewer_places():
    maps = model_3d_desc(pp_degree=2, tp_degree=2, dp_degree=1).reshape(model_3d_desc(1, 1, 1))
    assert maps[0].get_data(0, 0) == [0, 1, 2, 3]
    assert not model_3d_desc(1, 1, 1).can_reshape(model_3d_desc(1, 2, 1))[0]


def test_ds_report_names_ops_and_versions():
    printed = subprocess.run([sys.executable, "-m", "deepspeed.env_report"], capture_output=True, text=True, check=True).stdout
    assert "fused_adam" in printed and "io_uring" in printed and torch.__version__ in printed and deepspeed.__version__ in printed


def test_the_current_device_is_one_for_tensors():
    accelerator = deepspeed.get_accelerator()
    assert torch.zeros(2).to(accelerator.current_device()).device.type == accelerator.device_name()


def test_pinned_memory_is_torchs(monkeypatch):
    accelerator = deepspeed.get_accelerator()
    assert not accelerator.is_pinned(torch.zeros(2, device="meta"))
    monkeypatch.setenv("DS_PIN_MEMORY_BACKEND", "native")
    with pytest.raises(deepspeed.NotSupportedError, match="DS_PIN_MEMORY_BACKEND"):
        accelerator.pin_memory(torch.zeros(2))


def test_a_backend_has_the_collectives_as_methods():
    backend = dist.TorchBackend("gloo", None, None)
    tensor = torch.ones(2)
    backend.all_reduce(tensor)
    assert tensor.tolist() == [backend.get_world_size()] * 2 and backend.has_all_gather_into_tensor()
    with pytest.raises(AttributeError, match="no method 'fly'"):
        backend.fly()


def test_collectives_of_one_tensor_take_a_number():
    gathered, summed = torch.zeros(1), torch.tensor(0.0)
    dist.all_gather_into_tensor(gathered, torch.tensor(3.0))
    dist.reduce_scatter_tensor(output_tensor=summed, tensor=gathered)
    assert gathered.tolist() == [3.0] and summed.item() == 3.0


@pytest.mark.parametrize(
    "module, name, way_out",
    [
        ("runtime.data_pipeline.data_routing.helper", "convert_to_random_ltd", "let all tokens pass all layers"),
        ("runtime.data_pipeline.data_sampling.data_analyzer", "DataAnalyzer", "dynamic batching takes lengths as dataset_seqlens"),
        ("compile.passes.sp_compile", "prepare_autosp_inputs", "sequence parallelism does not exist"),
        ("compile.passes.zero3_compile", "add_z3_gather_release", "leave passes over graphs out"),
    ],
)
def test_names_of_what_does_not_exist_are_imported_and_refuse_with_the_way_out(module, name, way_out):
    called = getattr(importlib.import_module(f"deepspeed.{module}"), name)
    with pytest.raises(deepspeed.NotSupportedError, match=f"{name} is not supported: .*{way_out}"):
        called()


def test_public_names_of_deepspeed_are_here_or_say_the_way_out():
    lacking = []
    for line in (pathlib.Path(__file__).parent / "golden" / "public_names.txt").read_text().splitlines():
        place, _, names = line.partition(":")
        module = importlib.import_module(place)
        for name in names.split():
            try:
                found = getattr(module, name)
            except AttributeError as error:
                lacking.append(str(error))
                continue
            if f"{place}.{name}" in refused_names():
                with pytest.raises(deepspeed.NotSupportedError, match=re.escape(f"{place}.{name} is not supported: ") + ".{20}"):
                    found()
    assert not lacking, lacking
    for name in ("no_such_name", "__no_such_name__"):
        assert not any(hasattr(importlib.import_module(place), name) for place in ("deepspeed", "deepspeed.utils", "deepspeed.compile"))


def test_plain_helpers_of_what_does_not_exist_work():
    from deepspeed.compression.helper import recursive_getattr, recursive_setattr

    model = torch.nn.Sequential(torch.nn.Sequential(torch.nn.Linear(2, 2)), torch.nn.ReLU())
    wide = torch.nn.Linear(2, 3)
    recursive_setattr(model, "0.0", wide)
    recursive_setattr(model, "1", torch.nn.Tanh())
    assert recursive_getattr(model, "0.0") is wide and recursive_getattr(model, "0.0.weight").shape == (3, 2)
    assert isinstance(model[1], torch.nn.Tanh)
    with pytest.raises(AttributeError, match="'7'"):
        recursive_getattr(model, "0.7")
    assert deepspeed.load_ds_config({"train_batch_size": 2}) == {"train_batch_size": 2}
    assert deepspeed.version == deepspeed.__version__ and deepspeed.dist is dist
    assert deepspeed.utils.fragment_address(numel=3, start=2).start == 2


def test_modules_are_reached_from_a_bare_import():
    program = "import deepspeed; deepspeed.moe.layer.MoE, deepspeed.moe.utils, deepspeed.nvme.sweep_main, deepspeed.moe.sharded_moe"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stderr == ""


def test_passes_over_graphs_are_imported_by_their_module():
    from deepspeed.compile.passes import offload_adam_states, prefetch, selective_gather, zero3_compile

    assert all(isinstance(each, types.ModuleType) for each in (offload_adam_states, prefetch, selective_gather, zero3_compile))


def test_breakdowns_are_written_at_the_default_level():
    model = torch.nn.Linear(4, 1)
    config = {"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW"}, "wall_clock_breakdown": True, "memory_breakdown": True}
    written = []
    handler = deepspeed.logger.handlers[0]
    emit, handler.emit = handler.emit, lambda record: written.append(record.getMessage())
    try:
        engine = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]
        engine.backward(engine(torch.ones(4, 4)).mean())
        engine.step()
    finally:
        handler.emit = emit
    assert sum("time (ms) | fwd_microstep" in line for line in written) == 1
    assert sum("memory after step" in line for line in written) == 1
    assert not any("activations that a step keeps" in line for line in written), "what no key asks for stays hidden"


def test_getters_of_sections_and_of_zero():
    zero = {"stage": 2, "reduce_bucket_size": 1000, "ignore_unused_parameters": False}
    config = {"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW"}, "zero_optimization": zero}
    engine = deepspeed.initialize(model=torch.nn.Linear(4, 1), config=config)[0]
    assert engine.zero_reduce_bucket_size() == 1000 and engine.zero_ignore_unused_parameters() is False
    assert engine.zero_allgather_partitions() is True and engine.zero_offload_param() is None
    off = (engine.flops_profiler_enabled, engine.elasticity_enabled, engine.curriculum_enabled_legacy, engine.data_efficiency_enabled)
    assert not any(getter() for getter in off + (engine.random_ltd_enabled, engine.eigenvalue_enabled, engine.graph_harvesting))


def test_an_engine_names_its_parameters_and_knows_where_it_is():
    config = {"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW"}, "zero_optimization": {"stage": 1}}
    engine = deepspeed.initialize(model=torch.nn.Linear(4, 1), config=config)[0]
    assert engine.param_names == {engine.module.weight: "weight", engine.module.bias: "bias"}
    assert engine.has_moe_layers is False and engine.inside_no_sync_ctxt is False
    with engine.no_sync():
        assert engine.inside_no_sync_ctxt
    assert not engine.inside_no_sync_ctxt


class Foe:
    """Is a file's order to run something."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


def test_files_of_others_are_read_without_running_what_they_say(tmp_path):
    for name in ("mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt"):
        torch.save({"args": Foe(tmp_path / "mark"), "iteration": 1}, tmp_path / name)
    engine = TorchCheckpointEngine()
    readers = (
        lambda: DeepSpeedCheckpoint(str(tmp_path)),
        lambda: get_model_3d_descriptor(str(tmp_path)),
        lambda: ZeROCheckpoint(str(tmp_path)).get_state_for_rank(0, 0, 0),
        lambda: engine.load(str(tmp_path / "mp_rank_00_model_states.pt")),
    )
    for read in readers:
        with pytest.raises(deepspeed.CheckpointError, match="_states.pt: .*add_safe_globals"):
            read()
    assert not (tmp_path / "mark").exists()


def test_files_of_plain_values_are_read(tmp_path):
    values = {
        "tensor": torch.arange(3),
        "args": argparse.Namespace(lr=0.5),
        "scalar": numpy.float64(0.25),
        "array": numpy.arange(3),
        "path": pathlib.PurePosixPath("a"),
        "scaler": LossScaler(2.0),
    }
    engine = TorchCheckpointEngine()
    engine.save(values, str(tmp_path / "file"))
    found = engine.load(str(tmp_path / "file"))
    assert torch.equal(found["tensor"], values["tensor"]) and (found["array"] == values["array"]).all()
    assert found["scaler"].cur_scale == 2.0 and all(found[key] == values[key] for key in ("args", "scalar", "path"))


class CallsGetattr:
    """As Python 3.11.2 pickles a member of an enumeration."""

    def __init__(self, *arguments):
        self.arguments = arguments

    def __reduce_ex__(self, protocol):
        return getattr, self.arguments


def test_a_file_of_python_3_11_2_names_members_of_enumerations(tmp_path):
    file = tmp_path / "file"
    torch.save({"zero_stage": CallsGetattr(ZeroStageEnum, "gradients")}, file)
    assert read_state(file)["zero_stage"] is ZeroStageEnum.gradients
    for owner, name in ((ZeroStageEnum, "mro"), (LossScaler, "__init__")):
        torch.save(CallsGetattr(owner, name), file)
        with pytest.raises(deepspeed.CheckpointError, match="is no safe global.*add_safe_globals"):
            read_state(file)


def test_the_files_that_deepspeed_wrote_are_read():
    files = sorted((pathlib.Path(__file__).resolve().parents[1] / "golden" / "deepspeed_checkpoints").rglob("*.pt"))
    assert len(files) > 50
    for path in files:
        assert read_state(path) is not None
