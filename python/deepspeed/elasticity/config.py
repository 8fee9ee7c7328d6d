"""Reads the section elasticity, and defines its errors."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

from deepspeed import _core
from deepspeed._errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any


class ElasticityError(ConfigError):
    """Serves as the base class of the errors about elasticity."""


class ElasticityConfigError(ElasticityError):
    """Says that the section is missing, not enabled, or contradicts itself."""


class ElasticityIncompatibleWorldSize(ElasticityError):
    """Says that the chosen batch does not fit the number of devices."""


@contextlib.contextmanager
def elasticity_errors() -> Iterator[None]:
    """Raises ElasticityConfigError for each ConfigError of the core that concerns the section."""
    try:
        yield
    except ConfigError as error:
        if re.match(r"(\[config\] )?(elasticity\b|\w+: got \S+ beside elasticity\b)", str(error)):
            raise ElasticityConfigError(str(error)) from None
        raise


def batch_of(section: Mapping[str, Any], world_size: int) -> tuple[int, list[int], int]:
    """Returns (train batch size, numbers of devices that fit, micro batch size).

    The micro batch size is for world_size devices; 0 if the batch does not fit them. Raises ElasticityConfigError.
    """
    try:
        return _core.elastic_batch(dict(section), world_size)
    except ConfigError as error:
        raise ElasticityConfigError(str(error)) from None


class ElasticityConfig:
    """Holds the section's values under DeepSpeed's names. Raises ElasticityConfigError for the faults that the core finds."""

    def __init__(self, param_dict: Mapping[str, Any]) -> None:
        try:
            values = _core.elastic_rules(dict(param_dict))
        except ConfigError as error:
            raise ElasticityConfigError(str(error)) from None
        batch_of(param_dict, 0)
        self.enabled: bool = values["enabled"]
        self.max_acceptable_batch_size: int = values["max_train_batch_size"]
        self.micro_batches: list[int] = values["micro_batch_sizes"]
        self.min_gpus: int = values["min_gpus"]
        self.max_gpus: int = values["max_gpus"]
        self.num_gpus_per_node: int = values["num_gpus_per_node"]
        self.model_parallel_size: int = values["model_parallel_size"]
        self.min_time: int = values["min_time"]
        self.version: float = values["version"]
        self.prefer_larger_batch_size: bool = values["prefer_larger_batch"]
        self.ignore_non_elastic_batch_info: bool = values["ignore_non_elastic_batch_info"]
        self._given = dict(param_dict)

    def repr(self) -> dict[str, Any]:
        return self._given
