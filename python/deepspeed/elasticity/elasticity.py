"""Chooses batch sizes by the core's rules."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

from deepspeed.elasticity.config import (
    ElasticityConfigError,
    ElasticityError,
    ElasticityIncompatibleWorldSize,
    batch_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_SECTION = "elasticity"
_LATEST = 0.2
_OLDEST_DEEPSPEED = (0, 3, 8)
_VARIABLE = "DEEPSPEED_ELASTICITY_CONFIG"


def elasticity_enabled(ds_config: Mapping[str, Any]) -> bool:
    return bool(ds_config.get(_SECTION, {}).get("enabled", False))


def ensure_immutable_elastic_config(runtime_elastic_config_dict: Mapping[str, Any]) -> None:
    """Raises ElasticityConfigError if the scheduler has other values, in DEEPSPEED_ELASTICITY_CONFIG."""
    if _VARIABLE not in os.environ:
        return
    expected = json.loads(os.environ[_VARIABLE])
    for key in ("max_train_batch_size", "micro_batch_sizes", "version"):
        if expected.get(key) != runtime_elastic_config_dict.get(key):
            raise ElasticityConfigError(
                f"elasticity.{key}: got {runtime_elastic_config_dict.get(key)}, the scheduler has {expected.get(key)} ({_VARIABLE})"
            )


def _world_size_of_job() -> int:
    """Returns the number in the variable WORLD_SIZE; 0 if it holds none."""
    found = os.environ.get("WORLD_SIZE", "")
    return int(found) if found.isdecimal() else 0


def compute_elastic_config(
    ds_config: str | Mapping[str, Any], target_deepspeed_version: str, world_size: int = 0, return_microbatch: bool = False
) -> tuple[int, list[int]] | tuple[int, list[int], int]:
    """Returns (train batch size, valid numbers of devices), on request with the micro batch size.

    world_size or return_microbatch requests it. Without world_size the micro batch size and version 0.2 of the rules use the variable
    WORLD_SIZE. Raises ElasticityConfigError for a section that is missing or not enabled, ElasticityIncompatibleWorldSize for a world
    that does not fit, and ElasticityError for an unknown version of the rules or of DeepSpeed.
    """
    config: Mapping[str, Any] = json.loads(ds_config) if isinstance(ds_config, str) else ds_config
    if _SECTION not in config:
        raise ElasticityConfigError(f"'{_SECTION}' is missing from the config, expected it for elastic training")
    section = config[_SECTION]
    if not section.get("enabled", False):
        raise ElasticityConfigError("elasticity.enabled: got false, expected true for elastic training")
    numbers = tuple(int(number) for number in re.findall(r"\d+", target_deepspeed_version)[:3])
    if numbers < _OLDEST_DEEPSPEED:
        raise ElasticityError(f"target_deepspeed_version: got {target_deepspeed_version}, expected 0.3.8 or newer, which knows elasticity")
    version = float(section.get("version", _LATEST))
    if version > _LATEST:
        raise ElasticityError(f"elasticity.version: got {version}, expected at most {_LATEST}")
    wants_micro = return_microbatch or world_size > 0
    if world_size == 0 and (return_microbatch or version == 0.2):
        world_size = _world_size_of_job()
    if return_microbatch and world_size == 0:
        raise ElasticityConfigError("a micro batch size needs a world size, expected world_size, or the variable WORLD_SIZE")
    batch, valid, micro = batch_of(section, world_size)
    if not wants_micro:
        return batch, valid
    if not micro:
        raise ElasticityIncompatibleWorldSize(f"world size {world_size} does not fit a batch of {batch}, expected one of {valid}")
    return batch, valid, micro
