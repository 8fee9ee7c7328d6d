"""The Trainer of Transformers: trains, evaluates, saves, resumes, and reads its weights under zero.Init."""

import pathlib

import pytest

from launching import run

PROGRAM = pathlib.Path(__file__).parent / "programs" / "trainer_llama.py"
# Loss, norm of the gradient and rate of each step, as DeepSpeed 0.19.6 gave them at stage 2.
GOLDEN = [
    [4.792849064, 0.562965035, 0.0],
    [4.795039654, 0.58934176, 0.001],
    [4.80072403, 0.581527829, 0.001],
    [4.78202343, 0.597827792, 0.001],
    [4.800789833, 0.56839782, 0.001],
    [4.803751945, 0.573174, 0.001],
]


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("stage", [2, 3])
def test_runs_the_trainer(stage, own, tmp_path):
    options = {"stage": stage, "folder": str(tmp_path), **({"optimizer": None, "scheduler": None} if own else {})}
    found = run(PROGRAM, options, timeout=600)
    if own:  # it warms up along a line, and has no golden losses
        assert [rate for *_, rate in found["lines"]] == pytest.approx([0.0, 5e-4, 1e-3, 1e-3, 1e-3, 1e-3])
        assert found["resumed"] == [pytest.approx(line, rel=1e-6) for line in found["lines"][3:]]
        return
    for line, expected in zip(found["lines"], GOLDEN, strict=True):
        assert line == pytest.approx(expected, rel=1e-5)
    assert found["resumed"] == [pytest.approx(line, rel=1e-6) for line in found["lines"][3:]]
    again, trained = found["sums"]
    assert again == pytest.approx(trained, rel=1e-6)
    assert found["is_partitioned"] == (stage == 3)
    assert found["rows"] == 128


@pytest.mark.parametrize("name, more", [("WarmupDecayLR", {"warmup_min_lr": "auto", "warmup_max_lr": "auto"}), ("WarmupCosineLR", {})])
def test_evaluates_without_training_by_the_trainer(name, more, tmp_path):
    scheduler = {"type": name, "params": {"total_num_steps": "auto", "warmup_num_steps": "auto", **more}}
    options = {"stage": 3, "folder": str(tmp_path), "scheduler": scheduler, "evaluates_alone": True}
    assert run(PROGRAM, options, timeout=600)["eval"] == pytest.approx(4.79, abs=0.05)
