"""What scripts do with a model that stage 3 has partitioned."""
import re

import pytest

from launching import PROGRAMS, finish, start

NAMES = re.findall(r"@probe\ndef (\w+)", (PROGRAMS / "probe_stage3.py").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_on_two_ranks(name):
    for rank, (status, output) in enumerate(finish(start("probe_stage3.py", name))):
        assert status == 0, f"rank {rank} ended with {status}:\n{output[-3000:]}"
        assert f"passed {name}" in output
