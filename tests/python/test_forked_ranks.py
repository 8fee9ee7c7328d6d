"""A rank that is a fork is what one that was started would be."""

import json
import subprocess

import pytest

from launching import finish, start

PROGRAM = """
import __main__, atexit, json, os, sys, time
import beside
atexit.register(lambda: print("its end"))
print(json.dumps([sys.argv[1:], os.getcwd(), sys.stdin.read(), __name__, __main__.VALUE if hasattr(__main__, "VALUE") else 0,
                  beside.NAME, os.environ["RANK"], hash("a name"), len(os.listdir("/proc/self/fd"))]), flush=True)
VALUE = 1
if sys.argv[1] == "raise":
    raise ValueError("what went wrong")
if sys.argv[1] == "wait":
    time.sleep(1000)
if sys.argv[1] != "0":
    sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def program(tmp_path):
    (tmp_path / "beside.py").write_text("NAME = 'a module beside it'")
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path / "program.py"


@pytest.mark.parametrize("how, status", [("0", 0), ("3", 3), ("raise", 1)])
def test_ends_as_a_started_rank(program, how, status):
    hashes, descriptors = [], {}
    for forked in (True, False):
        results = finish(start(program, how, ranks=2, cwd=program.parent, forked=forked))
        for rank, (ended, output) in enumerate(results):
            assert ended == status, output
            *found, name_hash, descriptors[forked] = json.loads(output.splitlines()[0])
            assert found == [[how], str(program.parent), "", "__main__", 0, "a module beside it", str(rank)]
            output = output.partition("nanobind: leaked")[0]  # said by a newer Triton, which forked ranks have loaded
            assert output.endswith("its end\n") and ("ValueError: what went wrong" in output) == (how == "raise")
            hashes.append(name_hash)
    assert len(set(hashes)) == 4, "ranks agree on the order of a set by chance"
    assert descriptors[True] <= descriptors[False] + 1


def test_kills_a_rank_that_waits(program):
    (rank,) = start(program, "wait", ranks=1, cwd=program.parent, forked=True)
    assert rank.stdout.readline() and rank.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        rank.wait(0.1)
    rank.kill()
    assert rank.wait(60) == rank.poll() == -9
    rank.kill()  # nothing is left to kill
