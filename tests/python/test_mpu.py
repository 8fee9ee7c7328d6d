"""Scripts whose ranks share layers out, and tell the engine so by an mpu."""

import pytest

from launching import expect_to_pass, names_of, run


@pytest.mark.parametrize("name", names_of("probe_mpu.py"))
def test_trains_slices_on_four_ranks(name):
    ranks = 2 if name == "the_norm_covers_stages_of_the_scripts_own" else 4
    expect_to_pass("probe_mpu.py", name, ranks=ranks)


def test_keeps_parts_of_activations_in_slices_and_trains_with_an_mpu():
    """Two ranks share a model out: the program compares losses and gradients with those of the whole model."""
    found = run("train_slices.py")
    assert found["losses"] == pytest.approx(found["expected"], rel=1e-6)
    assert found["norms"] == pytest.approx(found["expected_norms"], rel=1e-5)
    assert found["sizes"] == [1, 2] and found["files"] == ["mp_rank_00_model_states.pt", "mp_rank_01_model_states.pt"]
    assert found["resumed"] == pytest.approx(found["expected"][-1:], rel=1e-6)
