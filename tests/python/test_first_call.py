"""zero.Init as the first call of all: it makes the group of the ranks, and asks for no size of a batch."""

import pytest

from launching import run


def test_builds_a_model_before_any_other_call():
    found = run("born_first.py")
    assert found["is_partitioned"] and found["losses"] == pytest.approx(found["expected"], rel=1e-6)
