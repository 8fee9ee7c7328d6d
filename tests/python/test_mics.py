"""Models that blocks of ranks hold once each."""

import pytest

from launching import expect_to_pass, names_of


@pytest.mark.parametrize("name", names_of("probe_mics.py"))
def test_trains_in_blocks_on_four_ranks(name):
    expect_to_pass("probe_mics.py", name, ranks=4)
