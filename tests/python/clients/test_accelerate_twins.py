"""A C++ program on our Accelerator trains as a Python program on Accelerate does, and each resumes what the other has saved."""

import hashlib
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(os.environ["DEEPSPEED_PROGRAMS"])
TRAINER = [str(PROGRAMS.parent / "tests" / "accelerate_trainer")]
TWIN = [sys.executable, str(Path(__file__).parent / "programs" / "accelerate_twin.py")]

OPTIMIZER = {"type": "AdamW", "params": {"lr": "auto", "weight_decay": "auto", "torch_adam": True, "adam_w_mode": True}}
SCHEDULER = {
    "type": "WarmupDecayLR",
    "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto", "total_num_steps": "auto"},
}
KINDS = ["config, config", "own, own", "own, config", "config, own"]


def case(kind: str, stage: int, precision: str, **changes) -> dict:
    name = json.dumps([kind, stage, precision, changes])
    config = {
        "train_micro_batch_size_per_gpu": "auto",
        "train_batch_size": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": changes.pop("clipping", "auto"),
        "zero_optimization": {"stage": stage, "reduce_bucket_size": "auto", **changes.pop("zero", {})},
        **({"optimizer": OPTIMIZER} if kind.startswith("config") else {}),
        **({"scheduler": SCHEDULER} if kind.endswith("config") else {}),
    }
    made = {"kind": kind, "config": config, "precision": precision, "gas": 1, "split": False, "samples": 30, "total": 20, **changes}
    return {"name": name, "file": "case" + hashlib.md5(name.encode()).hexdigest(), **made}


CASES = [case(kind, stage, precision) for kind in KINDS for stage in range(4) for precision in ("no", "bf16")]
CASES += [case(kind, stage, "no", gas=2, samples=27) for kind in ("config, config", "own, own") for stage in (0, 2, 3)]
CASES += [case("own, own", 1, "no", split=True, samples=30), case("config, config", 2, "no", clipping=0.05)]
CPU = {"offload_optimizer": {"device": "cpu"}}
CASES += [case("own, own", stage, "no", zero=CPU) for stage in (2, 3)]


def run(program: list[str], mode: str, folder: Path, cases: Path) -> list[dict]:
    """Returns what rank 0 of two printed."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("ACCELERATE_")}
    words = [PROGRAMS / "deepspeed", "--num_procs", "2", "--no_local_rank", "--no_python", *program, mode, cases, folder]
    done = subprocess.run(list(map(str, words)), env=env, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("twins")
    (folder / "cases.json").write_text(json.dumps(CASES))
    made = {}
    for name, program in (("cpp", TRAINER), ("python", TWIN)):
        (folder / name).mkdir()
        made[name] = run(program, "train", folder / name, folder / "cases.json")
    # Each goes on from what the other has saved.
    made["cpp resumed"] = run(TRAINER, "resume", folder / "python", folder / "cases.json")
    made["python resumed"] = run(TWIN, "resume", folder / "cpp", folder / "cases.json")
    return made


def assert_equal(ours: list[float], theirs: list[float], precision: str, what: str) -> None:
    assert len(ours) == len(theirs), what
    near = 1e-6 if precision == "no" else 1e-3
    for a, b in zip(ours, theirs, strict=True):
        assert math.isclose(a, b, rel_tol=near, abs_tol=near * 0.1), f"{what}: {ours} and {theirs}"


@pytest.mark.parametrize("index", range(len(CASES)), ids=[each["name"] for each in CASES])
def test_losses_rates_and_configs_are_equal(runs, index):
    ours, theirs, precision = runs["cpp"][index], runs["python"][index], CASES[index]["precision"]
    assert ours["name"] == theirs["name"]
    assert_equal(ours["before"], theirs["before"], precision, "losses")
    assert_equal(ours["lr"], theirs["lr"], "no", "rates")
    assert_equal(ours["after"], theirs["after"], precision, "later losses")
    assert ours["config"] == theirs["config"]


@pytest.mark.parametrize("index", range(len(CASES)), ids=[each["name"] for each in CASES])
def test_each_resumes_what_the_other_has_saved(runs, index):
    precision = CASES[index]["precision"]
    for resumed, saved in (("cpp resumed", "python"), ("python resumed", "cpp")):
        assert runs[resumed][index]["counter"] == 7
        assert_equal(runs[resumed][index]["lr"], runs[saved][index]["lr"], "no", "rates")
        assert_equal(runs[resumed][index]["after"], runs[saved][index]["after"], precision, resumed)
