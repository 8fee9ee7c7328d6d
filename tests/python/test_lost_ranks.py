"""A rank that leaves: what the other one is told."""
import json
import time

import pytest

from launching import finish, result_of, start


@pytest.mark.parametrize("how, status", [("raise", 1), ("exit", 3)])
@pytest.mark.parametrize("stage", [0, 2, 3])
def test_the_other_rank_has_an_error_that_names_it(how, status, stage):
    begin = time.monotonic()
    kept, left = finish(start("loses_a_rank.py", json.dumps(dict(how=how, stage=stage))))
    assert kept[0] == 0 and left[0] == status, kept[1][-2000:] + left[1][-2000:]
    assert how == "exit" or "Lost: no more" in left[1]
    error = result_of(kept[1])["error"]
    assert "rank 1" in error and "group 'engine'" in error, error
    assert any(name in error for name in ("all_gather", "all_reduce", "reduce_scatter", "broadcast", "reduce")), error
    if stage == 3 and "all_gather" in error:
        assert any(name in error for name in ("embed.weight", "inner.weight", "inner.bias")), error
    assert time.monotonic() - begin < 100, "a wait without the error would last for half an hour"
