"""Chooses batch sizes that fit many numbers of devices, from the section elasticity."""

from typing import TYPE_CHECKING

from deepspeed._lazy import lazy
from deepspeed.elasticity.elasticity import (
    compute_elastic_config as compute_elastic_config,
    elasticity_enabled as elasticity_enabled,
    ensure_immutable_elastic_config as ensure_immutable_elastic_config,
)

ELASTICITY = "elasticity"  # the section of a config
ENABLED = "enabled"  # a key of the section
ENABLED_DEFAULT = False

if not TYPE_CHECKING:
    __getattr__ = lazy(__name__)
