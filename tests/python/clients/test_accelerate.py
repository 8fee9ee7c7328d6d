"""BERT under Accelerate: losses and rates as DeepSpeed gave them, before and after a resume."""

import json
import pathlib

import accelerate
import pytest
from packaging.version import Version

from launching import finish, run, start

HERE = pathlib.Path(__file__).parent
GOLDEN = json.loads((HERE / "golden" / "accelerate.json").read_text())
PROGRAM = HERE / "programs" / "accelerate_bert.py"


def expect_losses_of_deepspeed(options, folder, tolerance=1e-6):
    found = run(PROGRAM, {**options, "save": str(folder / "saved"), "folder": str(folder)}, timeout=600)
    golden = GOLDEN[f"{options['dtype']}-{options['optimizer']}-{options['schedule']}"]
    assert found["losses"] == pytest.approx(golden["losses"], rel=tolerance)
    assert found["rates"] == pytest.approx(golden["rates"], rel=1e-9)
    assert found["keys"] == golden["keys"]
    assert found["resumed"] == pytest.approx(found["after"], rel=1e-6)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_trains_at_each_stage(stage, tmp_path):
    expect_losses_of_deepspeed(dict(stage=stage, dtype="fp32", optimizer="config", schedule="config"), tmp_path)


@pytest.mark.parametrize("stage", [2, 3])
@pytest.mark.parametrize("optimizer, schedule", [("client", "client"), ("client", "config"), ("config", "client")])
def test_takes_optimizers_and_schedules(stage, optimizer, schedule, tmp_path):
    expect_losses_of_deepspeed(dict(stage=stage, dtype="fp32", optimizer=optimizer, schedule=schedule), tmp_path)


def test_trains_in_bf16(tmp_path):
    expect_losses_of_deepspeed(dict(stage=3, dtype="bf16", optimizer="config", schedule="config"), tmp_path, 2e-3)


@pytest.mark.parametrize("device", ["cpu", "nvme"])
def test_trains_with_offload(device, tmp_path):
    options = dict(stage=3, dtype="fp32", optimizer="config", schedule="config", offload_optimizer=device, offload_param=device)
    expect_losses_of_deepspeed(options, tmp_path)


def test_offloads_an_optimizer_of_the_script(tmp_path):
    options = dict(stage=3, dtype="fp32", optimizer="client", schedule="client", offload_optimizer="cpu")
    expect_losses_of_deepspeed(options, tmp_path)


@pytest.mark.skipif(Version(accelerate.__version__) < Version("1.13"), reason="it chooses a backend by itself")
def test_explains_the_batch_to_ranks_that_accelerate_does_not_count(tmp_path):
    options = dict(stage=2, dtype="fp32", optimizer="config", schedule="config", backend=None, names_batch=True, save=str(tmp_path))
    for status, output in finish(start(PROGRAM, json.dumps(options))):
        assert status != 0 and "ConfigError" in output and "train_batch_size" in output.split("ConfigError")[1], output[-2000:]
