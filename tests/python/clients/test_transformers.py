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


@pytest.mark.parametrize("stage", [2, 3])
def test_trainer(stage, tmp_path):
    found = run(PROGRAM, {"stage": stage, "folder": str(tmp_path)}, timeout=600)
    for line, expected in zip(found["lines"], GOLDEN, strict=True):
        assert line == pytest.approx(expected, rel=1e-5)
    assert found["resumed"] == [pytest.approx(line, rel=1e-6) for line in found["lines"][3:]]
    again, trained = found["sums"]
    assert again == pytest.approx(trained, rel=1e-6)
    assert found["is_partitioned"] == (stage == 3)
    assert found["rows"] == 128
