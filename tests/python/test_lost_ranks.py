"""A rank that leaves: what the other one is told."""

import json
import signal
import threading

import pytest

from launching import finish, result_of, start


@pytest.mark.parametrize("how, status", [("raise", 1), ("exit", 3)])
@pytest.mark.parametrize("stage", [0, 2, 3])
def test_names_a_lost_rank_in_the_other_ranks_error(how, status, stage):
    kept, left = finish(start("loses_a_rank.py", json.dumps(dict(how=how, stage=stage)), forked=True))
    assert kept[0] == 0 and left[0] == status, kept[1][-2000:] + left[1][-2000:]
    assert how == "exit" or "Lost: no more" in left[1]
    error = result_of(kept[1])["error"]
    assert "rank 1" in error and "group 'engine'" in error, error
    assert any(name in error for name in ("all_gather", "all_reduce", "reduce_scatter", "broadcast", "reduce")), error
    if stage == 3 and "all_gather" in error:
        assert any(name in error for name in ("embed.weight", "inner.weight", "inner.bias")), error


@pytest.mark.parametrize("stage", [0, 3])
def test_names_a_stopped_rank_and_continues_the_job(stage):
    ranks = start("loses_a_rank.py", json.dumps(dict(how="stop", stage=stage)), forked=True)
    said = []
    limit = threading.Timer(100, lambda: [rank.kill() for rank in ranks])
    limit.start()
    for line in ranks[0].stdout:
        said.append(line)
        if "does not run" in line:
            break
    limit.cancel()
    assert said and f"rank 1 (process {ranks[1].pid}) does not run: it is stopped (state T)" in said[-1], said
    assert "rank 0 waits for it in" in said[-1] and "of group 'engine" in said[-1], said
    ranks[1].send_signal(signal.SIGCONT)
    kept, stopped = finish(ranks)
    assert kept[0] == 0 and stopped[0] == 0, kept[1][-2000:] + stopped[1][-2000:]
    assert result_of(kept[1])["error"] is None
    assert "does not run" not in kept[1] + stopped[1], "it is said once"
