"""A DeepSpeedTrial of Determined, on two CPU ranks without a cluster."""

import pathlib

import pytest
import torch

from launching import run

# Of rank 0's micro batches, as DeepSpeed 0.19.6 gave them.
GOLDEN = [
    0.2407354861497879,
    0.05809172987937927,
    0.006723442114889622,
    0.1072743684053421,
    0.2648419141769409,
    0.5823661088943481,
    0.7850223779678345,
    1.2725719213485718,
    0.41660189628601074,
    0.16970328986644745,
    0.00754036009311676,
    0.02501773089170456,
    0.13496685028076172,
    0.3609428405761719,
    0.5022577047348022,
    0.8757240772247314,
]
PROGRAM = pathlib.Path(__file__).parent / "programs" / "determined_trial.py"


def run_trial(options, tmp_path):
    # At each checkpoint Determined copies the current folder, which is empty here.
    variables = dict(CROSS_RANK="0", CROSS_SIZE="1", LOCAL_SIZE="2", HOME=str(tmp_path / "home"))
    (tmp_path / "here").mkdir()
    return run(PROGRAM, options, env=variables, cwd=tmp_path / "here", timeout=600)


@pytest.mark.parametrize("stage", [1, 3])
def test_runs_a_trial(stage, tmp_path):
    found = run_trial({"stage": stage}, tmp_path)
    assert found["losses"] == pytest.approx(GOLDEN, rel=1e-6)
    assert found["global_steps"] == 8


def test_runs_a_trial_of_a_pipeline(tmp_path):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(1, 4), torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    expected = []
    for step in range(8):
        inputs = torch.arange(16.0)[:, None] / 64 + step % 4 / 4
        loss = torch.nn.functional.mse_loss(model(inputs), 2 * inputs)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    found = run_trial({"stage": 1, "pipeline": True}, tmp_path)
    assert found["losses"] == pytest.approx(expected, rel=1e-5)
    assert found["global_steps"] == 8 and len(found["evaluated"]) == 8
