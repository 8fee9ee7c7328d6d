"""LoRA adapters by PEFT: stages 2 and 3 train alike, and a checkpoint without frozen parameters holds the adapters."""

import pathlib

import pytest

from launching import run

PROGRAM = pathlib.Path(__file__).parent / "programs" / "peft_lora.py"


def test_adapters_train_alike_and_are_saved_alone(tmp_path):
    results = [run(PROGRAM, {"stage": stage, "folder": str(tmp_path / str(stage))}, timeout=600) for stage in (0, 2, 3)]
    for found in results:
        assert found["losses"] == pytest.approx(results[0]["losses"], rel=1e-6)
        assert found["losses"][-1] < found["losses"][0]
        assert len(found["adapters"]) == 8
        assert found["saved"] == pytest.approx(found["adapters"], rel=1e-6)
