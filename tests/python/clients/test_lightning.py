"""The DeepSpeedStrategy of Lightning, of which a CPU needs two checks lifted: fit, save, and go on in a new Trainer."""

import pathlib

import pytest

from launching import run

PROGRAM = pathlib.Path(__file__).parent / "programs" / "lightning_fit.py"
# Of rank 0's micro batches, as DeepSpeed 0.19.6 gave them at stage 2 when the strategy named it a device.
GOLDEN = [
    1.554124355316162,
    1.6115511655807495,
    1.5738023519515991,
    1.547998309135437,
    1.2291045188903809,
    1.3036044836044312,
    1.237661361694336,
    1.309423565864563,
    0.862403929233551,
    0.9303379654884338,
    0.9040889143943787,
    0.8487040400505066,
    0.8618708252906799,
    0.9468159675598145,
    0.5420563817024231,
    0.5290398001670837,
]


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_fits_and_resumes(stage, tmp_path):
    found = run(PROGRAM, {"stage": stage, "folder": str(tmp_path)}, timeout=600)
    assert found["whole"] == pytest.approx(GOLDEN, rel=1e-6)
    assert found["resumed"] == pytest.approx(found["whole"], rel=1e-6)
