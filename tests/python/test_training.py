"""Losses of a GPT at each stage, precision and kind of optimizer, against those that DeepSpeed gave on the same data."""

import json
import pathlib

import pytest

from launching import run

GOLDEN = json.loads((pathlib.Path(__file__).parent / "golden" / "losses.json").read_text())


def expect_losses(found, expected, tolerance):
    assert len(found["losses"]) == len(expected["losses"])
    for step, (loss, golden) in enumerate(zip(found["losses"], expected["losses"])):
        assert loss == pytest.approx(golden, rel=tolerance), f"micro step {step}"
    assert found["rates"] == pytest.approx(expected["rates"], rel=1e-9)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_gives_deepspeeds_losses_in_fp32(stage):
    expect_losses(run("train_gpt.py", {"stage": stage}), GOLDEN["fp32"], 1e-6)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_stays_with_deepspeed_for_fifty_five_steps(stage):
    expect_losses(run("train_gpt.py", {"stage": stage, "micro_steps": 110}), GOLDEN["55 steps"], 1e-6)


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize("dtype, tolerance", [("bf16", 5e-4), ("fp16", 1e-4)])
def test_gives_deepspeeds_losses_in_16_bits(stage, dtype, tolerance):
    expect_losses(run("train_gpt.py", {"stage": stage, "dtype": dtype}), GOLDEN[dtype], tolerance)


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_trains_16_bits_at_stage_0_as_at_the_others(dtype):
    found = run("train_gpt.py", {"stage": 0, "dtype": dtype})
    expect_losses(found, GOLDEN[dtype], 5e-4)
    if dtype == "bf16":  # DeepSpeed itself runs an optimizer step at construction there
        expect_losses(found, GOLDEN["bf16 at stage 0"], 8e-3)


@pytest.mark.parametrize("stage", [1, 3])
def test_gives_the_same_losses_with_a_direct_backward(stage):
    expect_losses(run("train_gpt.py", {"stage": stage, "direct": True}), GOLDEN["fp32"], 1e-6)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("client", ["AdamW", "SGD", "RMSprop", "NAdam"])
def test_gives_deepspeeds_losses_with_an_optimizer_of_the_script(stage, client):
    options = {"stage": stage, "client": client, "schedule": "object"}
    expect_losses(run("train_gpt.py", options), GOLDEN[client], 1e-6)


@pytest.mark.parametrize("stage", [1, 3])
def test_passes_an_optimizer_to_a_callable_schedule(stage):
    expect_losses(run("train_gpt.py", {"stage": stage, "schedule": "lambda"}), GOLDEN["lambda"], 1e-6)


@pytest.mark.parametrize("device", ["cpu", "nvme"])
def test_changes_nothing_by_offload(device, tmp_path):
    for stage in (2, 3):
        options = {"stage": stage, "offload": device, "folder": str(tmp_path)}
        expect_losses(run("train_gpt.py", options), GOLDEN["fp32"], 1e-6)


@pytest.mark.parametrize("client", [None, "AdamW", "NAdam"])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_resumes_as_if_nothing_had_happened(stage, client, tmp_path):
    options = {"stage": stage, "client": client, "schedule": "object" if client else "config"}
    whole = run("train_gpt.py", {**options, "save": str(tmp_path), "save_after": 10})
    resumed = run("train_gpt.py", {**options, "load": str(tmp_path)})
    assert resumed["losses"] == whole["losses"][10:]
    assert resumed["rates"] == whole["rates"][10:]
