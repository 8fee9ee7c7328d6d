"""The rules by which batch sizes are chosen, as scripts and schedulers ask for them."""

import pytest

from deepspeed.elasticity import compute_elastic_config
from deepspeed.elasticity.config import ElasticityConfig, ElasticityConfigError, ElasticityIncompatibleWorldSize

SIZES = {"enabled": True, "max_train_batch_size": 100, "micro_batch_sizes": [4, 8], "max_gpus": 64}


def batch(version, *, world_size=0, return_microbatch=False, **keys):
    config = {"elasticity": {**SIZES, "version": version, **keys}}
    return compute_elastic_config(config, "0.19.6", world_size=world_size, return_microbatch=return_microbatch)


@pytest.fixture(autouse=True)
def without_world_size(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)


def test_returns_a_batch_with_the_numbers_that_it_fits():
    assert batch(0.1) == (96, [1, 2, 3, 4, 6, 8, 12, 24])
    assert batch(0.1, world_size=6) == (96, [1, 2, 3, 4, 6, 8, 12, 24], 8)
    with pytest.raises(ElasticityIncompatibleWorldSize, match="world size 5 does not fit a batch of 96"):
        batch(0.1, world_size=5)


@pytest.mark.parametrize("version", [0.1, 0.2])
def test_uses_the_jobs_world_for_a_micro_batch_size(version, monkeypatch):
    with pytest.raises(ElasticityConfigError, match="expected world_size, or the variable WORLD_SIZE"):
        batch(version, return_microbatch=True)
    monkeypatch.setenv("WORLD_SIZE", "many")
    with pytest.raises(ElasticityConfigError, match="expected world_size, or the variable WORLD_SIZE"):
        batch(version, return_microbatch=True)
    monkeypatch.setenv("WORLD_SIZE", "24")
    assert batch(version, return_microbatch=True) == (96, [1, 2, 3, 4, 6, 8, 12, 24], 4)
    assert batch(version, world_size=12, return_microbatch=True)[2] == 8  # the argument comes first


def test_refuses_a_jobs_world_that_does_not_fit_by_the_rules_of_numbers(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "5")
    with pytest.raises(ElasticityIncompatibleWorldSize, match="world size 5 does not fit a batch of 96"):
        batch(0.1, return_microbatch=True)
    assert batch(0.1) == (96, [1, 2, 3, 4, 6, 8, 12, 24])


def test_chooses_a_batch_for_the_jobs_world_by_the_rules_of_machines(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "5")
    assert batch(0.2) == (100, [5])
    assert batch(0.2, return_microbatch=True) == (100, [5], 4)


@pytest.mark.parametrize(
    ("section", "text"),
    [
        ({"enabled": True, "micro_batch_sizes": [4]}, "elasticity.max_train_batch_size: is missing, but elasticity.enabled true needs it"),
        ({**SIZES, "min_gpu": 2}, "elasticity.min_gpu: unknown key.*did you mean 'elasticity.min_gpus'"),
        ({**SIZES, "max_gpus": 0}, "elasticity.max_gpus: got 0, expected a whole number of at least 1"),
        ({**SIZES, "micro_batch_sizes": []}, "elasticity.micro_batch_sizes: got \\[\\], expected positive whole numbers"),
    ],
)
def test_a_fault_of_the_section_is_named_by_its_key(section, text):
    with pytest.raises(ElasticityConfigError, match=text):
        compute_elastic_config({"elasticity": section}, "0.19.6")
    with pytest.raises(ElasticityConfigError, match=text):
        ElasticityConfig(section)


def test_the_config_has_the_defaults_of_the_core():
    config = ElasticityConfig({"max_train_batch_size": 8})
    assert (config.enabled, config.max_acceptable_batch_size, config.micro_batches) == (False, 8, [2, 4, 6])
    assert (config.min_time, config.version, config.prefer_larger_batch_size) == (0, 0.2, True)
    assert config.repr() == {"max_train_batch_size": 8}
