"""What scripts do with a model that stage 3 has partitioned."""

import pytest

from launching import expect_to_pass, names_of


@pytest.mark.parametrize("name", names_of("probe_stage3.py"))
def test_partitions_parameters_on_two_ranks(name):
    expect_to_pass("probe_stage3.py", name)


@pytest.mark.parametrize("name", names_of("probe_gathered.py"))
def test_gathers_parameters_on_two_ranks(name):
    expect_to_pass("probe_gathered.py", name)


@pytest.mark.parametrize("name", names_of("probe_births.py"))
def test_partitions_models_while_they_are_built_on_two_ranks(name):
    expect_to_pass("probe_births.py", name)
