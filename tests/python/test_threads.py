"""Waits of the core, in which other threads of Python go on."""

import pytest

from launching import run


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_lets_threads_run_while_the_engine_waits_for_another_rank(stage):
    """If the core kept the interpreter's lock there, neither rank would ever come further."""
    found = run("waits_beside_a_thread.py", {"stage": stage})
    assert found["steps"] == 2 and len(found["waited_in"]) == 1, found
