"""Pipelines of Python's layers: losses against DeepSpeed's pipeline and torch alone, and what programs meet."""

import json
import pathlib
import pickle

import pytest
import torch

import deepspeed
from deepspeed.pipe import LayerSpec, TiedLayerSpec
from deepspeed.runtime.pipe import schedule
from deepspeed.runtime.pipe.tensor_lists import from_list, to_list
from deepspeed.runtime.pipe.topology import PipeDataParallelTopology, PipeModelDataParallelTopology, ProcessTopology
from launching import finish, names_of, result_of, run, start

GOLDEN = json.loads((pathlib.Path(__file__).parent / "golden" / "pipeline_losses.json").read_text())
INTERLEAVED = {"chunks": 2, "pipeline": {"schedule": "interleaved", "model_chunks": 2}}


def losses_of(options, ranks=2):
    found = run("train_pipeline.py", options, ranks=ranks)
    return [*found["losses"], found["eval"]]


def golden(name):
    return [*GOLDEN[name]["losses"], GOLDEN[name]["eval"]]


@pytest.mark.parametrize(
    "name, options",
    [
        ("fp32", {"stages": 2}),
        ("one stage", {"stages": 1}),
        ("clip", {"stages": 2, "zero": 1, "clip": 0.5}),
        ("dropout", {"stages": 2, "seed_layers": True, "dropout": 0.2, "partition": "uniform"}),
        ("parameters", {"stages": 2, "partition": "parameters"}),
    ],
)
def test_gives_the_losses_and_cuts_of_deepspeeds_pipeline(name, options):
    found = run("train_pipeline.py", options)
    assert [*found["losses"], found["eval"]] == pytest.approx(golden(name), rel=1e-6)
    assert (found["parts"], found["names"]) == (GOLDEN[name]["parts"], GOLDEN[name]["names"])


@pytest.mark.parametrize(
    "name, ranks, options",
    [
        ("50 steps", 2, {"stages": 2}),
        ("50 steps, four stages", 4, {"stages": 4}),
        ("50 steps, ZeRO 1", 4, {"stages": 2, "zero": 1, "clip": 0.5}),
        # What DeepSpeed lacks is held against what it has.
        ("50 steps", 2, {"stages": 2, "pipeline": {"schedule": "zero_bubble"}}),
        ("50 steps", 2, {"stages": 2, **INTERLEAVED}),
        ("50 steps, ZeRO 1", 4, {"stages": 2, "zero": 2, "clip": 0.5}),
        ("50 steps, four stages", 4, {"stages": 4, "interval": 1, "pipeline": {"schedule": "zero_bubble"}}),
    ],
)
def test_stays_with_deepspeeds_pipeline_for_fifty_steps(name, ranks, options):
    losses = losses_of({**options, "steps": 50}, ranks)
    assert len(losses) == 51 and losses[-2] < 0.6 * losses[0]
    assert losses == pytest.approx(golden(name), rel=1e-4)


@pytest.mark.parametrize("interval", [0, 1])
def test_repeats_dropout_under_every_schedule(interval):
    seeds = {"stages": 2, "seed_layers": True, "dropout": 0.2, "partition": "uniform", "interval": interval}
    expected = losses_of(seeds, 2)
    for section in ({"pipeline": {"schedule": "zero_bubble"}}, INTERLEAVED):
        assert losses_of({**seeds, **section}, 2) == pytest.approx(expected, rel=1e-6)


SMALL = {"blocks": 1, "partition": "uniform"}
GOLDEN_FOLDER = pathlib.Path(__file__).parent / "golden"


@pytest.mark.parametrize("stages, zero, loads", [(2, 1, 1), (1, 1, 1), (2, 2, 1), (2, 0, 0), (2, 1, 0), (1, 0, 0), (1, 1, 0)])
def test_resumes_a_checkpoint_of_deepspeeds_pipeline(stages, zero, loads):
    """`loads` is the ZeRO stage of the run that DeepSpeed saved."""
    options = {**SMALL, "stages": stages, "zero": zero, "load": str(GOLDEN_FOLDER / f"pipeline_checkpoint_zero{loads}")}
    expected = GOLDEN["saved" if loads == 1 else "saved at ZeRO 0"]["losses"][4:]
    assert run("train_pipeline.py", options)["losses"] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("ranks", [3, 4])
def test_resumes_states_that_deepspeed_does_not_name_at_more_stages(ranks):
    options = {**SMALL, "stages": ranks, "zero": 0, "load": str(GOLDEN_FOLDER / "pipeline_checkpoint_zero0")}
    expected = GOLDEN["saved at ZeRO 0"]["losses"][4:]
    assert run("train_pipeline.py", options, ranks=ranks)["losses"] == pytest.approx(expected, rel=1e-6)


FLAGS_OF_TORCHS_ADAM = {"maximize", "foreach", "capturable", "differentiable", "fused", "decoupled_weight_decay", "amsgrad"}


def assert_alike(found, expected, place):
    """What DeepSpeed's file holds is in ours, under the same names, of the same types, with values that differ by rounding."""
    if isinstance(expected, dict):
        names = set(expected) - FLAGS_OF_TORCHS_ADAM
        assert names - set(found) == set(), place
        for key in names:
            assert_alike(found[key], expected[key], f"{place}: {key}")
    elif isinstance(expected, (list, tuple)):
        assert isinstance(found, (list, tuple)) and len(found) == len(expected), place
        for index, (one, other) in enumerate(zip(found, expected)):
            assert_alike(one, other, f"{place}: {index}")
    elif torch.is_tensor(expected) and isinstance(found, int):
        assert found == expected.item(), place  # a step, which torch's optimizers read in both forms
    elif torch.is_tensor(expected):
        # The gradients of the keys' biases are rounding alone, of which Adam makes steps of any size up to its rate.
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=2e-4, msg=lambda text: f"{place}: {text}")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected), place
    elif expected is None and not place.endswith(("shared_params", "param_shapes")):  # which DeepSpeed has at ZeRO stage 1 alone
        assert not found, place  # frozen parameters, of which there are none
    elif isinstance(expected, (bool, int, str)):
        assert found == expected, place


@pytest.mark.parametrize("zero, num_files", [(0, 6), (1, 8)])
def test_writes_what_deepspeeds_pipeline_writes_into_a_checkpoint(tmp_path, zero, num_files):
    golden_folder = GOLDEN_FOLDER / f"pipeline_checkpoint_zero{zero}"
    run("train_pipeline.py", {**SMALL, "stages": 2, "zero": zero, "steps": 4, "save_at": 4, "save": str(tmp_path)})
    assert (tmp_path / "latest").read_text().strip() == (golden_folder / "latest").read_text().strip()
    files = sorted(path.name for path in (golden_folder / "saved").glob("*.pt"))
    assert len(files) == num_files
    for name in files:
        ours, theirs = (torch.load(folder / "saved" / name, weights_only=False) for folder in (tmp_path, golden_folder))
        theirs.pop("ds_version", None)  # ours names itself behind it
        assert_alike(ours, theirs, name)


def test_gives_deepspeeds_losses_in_16_bits():
    assert losses_of({"stages": 2, "dtype": "bf16"}) == pytest.approx(golden("bf16"), rel=1e-3)


@pytest.mark.parametrize(
    "options",
    [
        {"zero": 2, "pipeline": {"schedule": "zero_bubble"}},
        INTERLEAVED,
        {"interval": 2},
        {"pipeline": {"activation_checkpoint_interval": 1, "use_reentrant": False}},
    ],
    ids=["zero_bubble", "interleaved", "recomputed", "recomputed_by_config"],
)
def test_changes_no_loss_by_schedules_and_recomputation(options):
    assert losses_of({"stages": 2, **options}) == pytest.approx(golden("fp32"), rel=1e-6)


def test_gives_the_losses_of_the_layers_without_a_pipeline():
    for name, options in (("fp32", {}), ("clip", {"clip": 0.5})):
        assert run("train_pipeline.py", {"plain": True, **options}, ranks=1)["losses"] == pytest.approx(GOLDEN[name]["losses"], rel=1e-6)


@pytest.mark.parametrize("subject", ["layers", "batches", "errors"])
def test_passes_the_probes_on_two_ranks(subject, tmp_path):
    program = f"probe_pipeline_{subject}.py"
    for rank, (status, output) in enumerate(finish(start(program, cwd=tmp_path, forked=True), timeout=600)):
        assert status == 0, f"rank {rank} ended with {status}:\n{output[-3000:]}"
    names = [line.split()[1] for line in output.splitlines() if line.startswith("passed ")]
    assert names == names_of(program)


def test_prints_the_loss_every_steps_per_print_batches_on_rank_0():
    options = json.dumps({"stages": 2, "prints_every": 5})
    outputs = [output for _, output in finish(start("train_pipeline.py", options, forked=True))]
    lines = [[line.split() for line in output.splitlines() if line.startswith("steps: ")] for output in outputs]
    losses = result_of(outputs[0])["losses"]
    assert [line[:4] for line in lines[0]] == [["steps:", str(step), "loss:", f"{losses[step - 1]:0.4f}"] for step in (5, 10)]
    assert all("iter time (s): " in " ".join(line) and float(line[-1]) > 0 for line in lines[0])
    assert lines[1] == []


# --- what needs no ranks ---


def test_lists_a_steps_instructions_in_deepspeeds_classes():
    steps = list(schedule.TrainSchedule(micro_batches=2, stages=2, stage_id=1))
    assert [[repr(instruction) for instruction in step] for step in steps] == [
        [],
        ["RecvActivation(buffer_id=0)", "LoadMicroBatch(buffer_id=0)", "ForwardPass(buffer_id=0)"],
        ["BackwardPass(buffer_id=0)"],
        ["SendGrad(buffer_id=0)", "RecvActivation(buffer_id=1)", "LoadMicroBatch(buffer_id=1)", "ForwardPass(buffer_id=1)"],
        ["BackwardPass(buffer_id=1)"],
        ["SendGrad(buffer_id=1)", "ReduceTiedGrads()", "ReduceGrads()", "OptimizerStep()"],
    ]
    assert type(steps[1][0]) is schedule.RecvActivation and isinstance(steps[1][0], schedule.BufferOpInstruction)
    assert steps[1][0].kwargs == {"buffer_id": 0} and steps[1][0].name == "RecvActivation"
    assert schedule.TrainSchedule(8, 4, 1).num_pipe_buffers() == 3 and schedule.InferenceSchedule(8, 4, 1).num_pipe_buffers() == 2


def test_yields_the_steps_of_a_scripts_schedule():
    class Forwards(schedule.PipeSchedule):
        def steps(self):
            for micro_batch in range(self.micro_batches):
                yield [schedule.ForwardPass(self._buffer_idx(micro_batch))]

        def num_pipe_buffers(self):
            return 2

    assert [step[0].buffer_id for step in Forwards(3, 1, 0)] == [0, 1, 0]


def test_maps_ranks_by_topologies_and_copies_them():
    topology = PipeModelDataParallelTopology(num_pp=2, num_mp=2, num_dp=3)
    assert topology.get_coord(7) == topology.ProcessCoord(pipe=1, data=0, model=1)
    assert topology.get_rank(pipe=1, data=0, model=1) == 7 and topology.mapping[topology.get_coord(7)] == 7
    assert topology.get_rank_repr(7) == "model_01" and topology.get_dim("expert") == 0
    copied = pickle.loads(pickle.dumps(PipeDataParallelTopology(2, 3)))
    assert isinstance(copied, PipeDataParallelTopology) and copied.get_axis_comm_lists("data") == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(ValueError, match="does not support slices"):
        topology.get_rank(pipe=1)
    with pytest.raises(ValueError):
        ProcessTopology(["a", "b"], [2])


def test_returns_values_from_their_lists():
    x, y = torch.ones(2), torch.zeros(3)
    for value in (x, (x,), (x, y), (x, None), (None, x), (x, None, None), ()):
        back = from_list(to_list(value, "a value"))
        assert type(back) is type(value) and (back is value or list(map(id, back)) == list(map(id, value)))
    assert len(to_list((x, y), "a value")) == 2
    with pytest.raises(TypeError, match=r"what layer 3 gives is a tuple of \(Tensor, int\)"):
        to_list((x, 1), "what layer 3 gives")


def test_describes_what_specs_build():
    spec = LayerSpec(torch.nn.Linear, 4, 2, bias=False)
    assert repr(spec) == "Linear(4, 2, bias=False)" and spec.build().weight.shape == (2, 4)
    assert TiedLayerSpec("tie", torch.nn.Linear, 4, 2, tied_weight_attr="weight").tied_weight_attr == ["weight"]
    with pytest.raises(RuntimeError, match="only supports torch.nn.Module"):
        LayerSpec(dict)


def test_lists_the_modules_stages(capsys):
    deepspeed.PipelineModule([LayerSpec(torch.nn.Linear, 4, 2), torch.relu], num_stages=1, loss_fn=torch.nn.MSELoss())
    assert capsys.readouterr().out.splitlines() == ["stage=0 layers=2", "     0: Linear", "     1: relu", "  loss: MSELoss"]


def test_uses_the_cores_cuts():
    assert deepspeed.runtime.utils.partition_uniform(7, 3) == [0, 3, 5, 7]
    assert deepspeed.runtime.utils.partition_balanced([8, 1, 1, 1, 1], 2) == [0, 1, 5]
