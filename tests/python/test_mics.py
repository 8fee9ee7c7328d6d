"""Models that blocks of ranks hold once each."""
import re

import pytest

from launching import PROGRAMS, finish, start

NAMES = re.findall(r"@probe\ndef (\w+)", (PROGRAMS / "probe_mics.py").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_on_four_ranks(name):
    for rank, (status, output) in enumerate(finish(start("probe_mics.py", name, ranks=4))):
        assert status == 0, f"rank {rank} ended with {status}:\n{output[-3000:]}"
        assert f"passed {name}" in output
