"""PEFT: adapters of each method train as with torch alone, and a checkpoint without frozen parameters holds them."""

import pathlib

import pytest

from launching import run

PROGRAMS = pathlib.Path(__file__).parent / "programs"


def test_trains_adapters_equally_and_saves_only_them(tmp_path):
    results = [run(PROGRAMS / "peft_lora.py", {"stage": stage, "folder": str(tmp_path / str(stage))}, timeout=600) for stage in (0, 2, 3)]
    for found in results:
        assert found["losses"] == pytest.approx(results[0]["losses"], rel=1e-6)
        assert found["losses"][-1] < found["losses"][0]
        assert len(found["adapters"]) == 8
        assert found["saved"] == pytest.approx(found["adapters"], rel=1e-6)


@pytest.mark.parametrize(("stage", "init"), [(2, False), (3, False), (3, True)], ids=["stage2", "stage3", "stage3_init"])
def test_trains_each_method_as_without_an_engine(stage, init):
    """The program compares losses and weights of each method with those of PEFT alone."""
    found = run(PROGRAMS / "peft_methods.py", {"stage": stage, "init": init}, timeout=900)
    assert len(found) == 50
    assert {method: result for method, result in found.items() if isinstance(result, str) or result > 1e-5} == {}
