"""The trainers of TRL: SFT with its chunked loss and with whole logits, DPO and GRPO have the losses of torch alone at stages 2 and 3."""

import functools
import pathlib

import pytest

from launching import run

PROGRAM = pathlib.Path(__file__).parent / "programs" / "trl_trainers.py"


@functools.cache
def losses_of_torch_alone(folder):
    return run(PROGRAM, {"stage": None, "folder": folder}, timeout=600)


@pytest.mark.parametrize("stage", [2, 3])
def test_runs_each_trainer(stage, tmp_path, tmp_path_factory):
    found = run(PROGRAM, {"stage": stage, "folder": str(tmp_path)}, timeout=600)
    expected = losses_of_torch_alone(str(tmp_path_factory.getbasetemp()))
    assert list(found) == list(expected) == ["sft", "sft_whole_logits", "sft_lora", "dpo", "dpo_lora", "grpo"]
    for name, lines in expected.items():
        assert len(lines) == 3 and lines[0] != lines[-1]
        for line, plain in zip(found[name], lines, strict=True):
            assert line == pytest.approx(plain, rel=2e-5, abs=1e-6), name
