"""Batch sizes that fit many numbers of devices, as the section elasticity of a config chooses them."""

from deepspeed.elasticity.elasticity import (
    compute_elastic_config as compute_elastic_config,
    elasticity_enabled as elasticity_enabled,
    ensure_immutable_elastic_config as ensure_immutable_elastic_config,
)
