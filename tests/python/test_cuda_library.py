"""libdeepspeed_cuda.so: loaded where there is a driver, and never missed where there is none. The driver is a stub without a
function, so that torch's CUDA libraries load and find no device."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from deepspeed import _build, _core

PROGRAMS = pathlib.Path(os.environ["DEEPSPEED_PROGRAMS"])
TELL = """
import json
import torch
import deepspeed
from deepspeed import _core
maps = open("/proc/self/maps").read()
print(json.dumps({
    "is_loaded": "libdeepspeed_cuda.so" in maps,
    "devices": _core.num_cuda_devices(),
    "why": _core.why_no_cuda_device(),
    "accelerator": deepspeed.get_accelerator().device_name(),
}))
"""
TRAIN = """
import torch
import deepspeed
model = torch.nn.Linear(4, 1)
engine, *_ = deepspeed.initialize(model=model, config={
    "train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}}, "zero_optimization": {"stage": 2}})
for _ in range(3):
    loss = engine(torch.ones(2, 4)).square().mean()
    engine.backward(loss)
    engine.step()
print("loss", loss.item())
"""


@pytest.fixture(scope="module")
def stub(tmp_path_factory):
    """The folder of a driver without a function."""
    folder = tmp_path_factory.mktemp("driver")
    source = folder / "driver.c"
    source.write_text("int deepspeed_test_driver;\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "libcuda.so.1", source], check=True)
    return folder


def variables(stub=None, **more):
    result = {name: value for name, value in os.environ.items() if name not in ("DS_ACCELERATOR", "LD_LIBRARY_PATH")}
    if stub is not None:
        result["LD_LIBRARY_PATH"] = str(stub)
    return {**result, **more}


def python(text, env):
    return subprocess.run([sys.executable, "-c", text], env=env, capture_output=True, text=True, timeout=300)


def told(env):
    run = python(TELL, env)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


built_with_cuda = pytest.mark.skipif(not _build.CUDA_ARCHITECTURES, reason="a build without CUDA")


@pytest.mark.skipif(pathlib.Path("/dev/nvidiactl").exists(), reason="this machine has a driver")
def test_loads_nothing_of_cuda_without_a_driver():
    found = told(variables())
    assert not found["is_loaded"] and found["devices"] == 0 and found["accelerator"] == "cpu"
    assert "no NVIDIA driver" in found["why"] or "this build has no CUDA" in found["why"]


@built_with_cuda
def test_loads_it_with_a_driver(stub):
    found = told(variables(stub))
    assert found["is_loaded"] and found["devices"] == 0 and found["accelerator"] == "cpu"
    assert "shows no device" in found["why"]


@built_with_cuda
def test_does_not_load_it_with_ds_accelerator_cpu(stub):
    found = told(variables(stub, DS_ACCELERATOR="cpu"))
    assert not found["is_loaded"] and "DS_ACCELERATOR" in found["why"]


def test_trains_on_the_cpu_with_a_driver_but_no_device(stub):
    run = python(TRAIN, variables(stub))
    assert run.returncode == 0 and "loss" in run.stdout, run.stderr
    assert (run.stdout + run.stderr).count("NVIDIA driver") == (0 if _build.CUDA_ARCHITECTURES else 1)


@built_with_cuda
def test_warns_once_and_trains_without_torchs_cuda_libraries(stub, tmp_path):
    """In a build folder a program finds torch, but not always the libraries of CUDA that torch loads on a machine with a GPU."""
    gpt2, root = PROGRAMS.parent / "examples" / "gpt2", pathlib.Path(__file__).parents[2]
    if not gpt2.exists():
        pytest.skip("the examples are not built")
    config = root / "examples" / "gpt2" / "ds_config.json"
    command = [
        gpt2,
        "--deepspeed_config",
        config,
        "--data",
        root / "README.md",
        "--steps",
        "2",
        "--layers",
        "1",
        "--heads",
        "2",
        "--width",
        "16",
        "--context",
        "16",
    ]
    run = subprocess.run(list(map(str, command)), cwd=tmp_path, env=variables(stub), capture_output=True, text=True, timeout=300)
    said = [line for line in run.stderr.splitlines() if "NVIDIA driver" in line]
    assert run.returncode == 0, run.stderr
    assert len(said) <= 1 and all("could not be loaded" in line for line in said)


def test_tells_the_same_build_in_core_and_package():
    assert bool(_build.CUDA) == bool(_build.CUDA_ARCHITECTURES)
    assert _core.version() in __import__("deepspeed").__version__
