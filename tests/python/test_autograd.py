"""What scripts do around forward and backward: hooks, transforms, threads and failures, with torch's own losses."""

import pytest

from launching import expect_to_pass, names_of

# Torch ends a job whose ranks call the collectives of a group in different orders.
CHECKED = {"scripts_may_reduce_beside_the_engine": {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}}


@pytest.mark.parametrize("name", names_of("probe_autograd.py"))
def test_follows_autograd_on_two_ranks(name):
    expect_to_pass("probe_autograd.py", name, env=CHECKED.get(name))
