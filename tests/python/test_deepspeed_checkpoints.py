"""Checkpoints that DeepSpeed has written: scripts go on with its losses, rates and client state."""

import json
import pathlib

import pytest

from launching import run

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "golden" / "deepspeed_checkpoints"
VARIANTS = {"stage1_fp32": "golden", "stage2_fp32": "golden", "stage3_fp32": "golden", "stage0_fp32_frozen": "frozen"}


def go_on(name, client=False, direct=False):
    expected = json.loads((FOLDER / name / "expected.json").read_text())
    options = dict(folder=name, variant=VARIANTS[name], config=expected["ds_config"], client=client, direct=direct)
    found = run("resume_deepspeed.py", options)
    assert len(found["losses"]) == len(expected["losses_after_save"]) == 3
    for losses, wanted in zip(found["losses"], expected["losses_after_save"]):
        assert losses == pytest.approx(wanted, rel=1e-6)
    assert found["state"]["note"] == "written by DeepSpeed" and found["state"]["epoch"] == 2
    # The warm-up of four steps ends with the first step after the checkpoint.
    assert found["rates"] == pytest.approx([0.0075, 0.01, 0.01]) and found["iteration"] == 5


@pytest.mark.parametrize("name", VARIANTS)
def test_resumes_with_the_configs_optimizer(name):
    go_on(name)


@pytest.mark.parametrize("name", ["stage1_fp32", "stage2_fp32", "stage3_fp32"])
def test_resumes_with_an_optimizer_of_the_script(name):
    go_on(name, client=True)


@pytest.mark.parametrize("name", ["stage1_fp32", "stage3_fp32"])
def test_resumes_with_a_backward_of_the_scripts_own(name):
    go_on(name, direct=True)
