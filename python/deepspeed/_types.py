"""Defines types for annotations of this package. No module imports them at run time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

from torch.distributed import ProcessGroup

Event: TypeAlias = tuple[str, Any, int]  # for a monitor: name, value, samples trained so far
CoreGroup: TypeAlias = tuple[dict[str, Any], Sequence[str], int]  # from the core: options, parameter names, index of the client's group


class HasGroups(Protocol):
    """Describes an optimizer, of torch or not, whose groups a schedule writes."""

    param_groups: list[dict[str, Any]]


class Schedule(Protocol):
    """Describes what an engine can step as its `lr_scheduler`."""

    def step(self, *args: Any, **kwargs: Any) -> Any: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: Any, /) -> Any: ...


class RateSchedule(Schedule, Protocol):
    """Describes a schedule that returns the rates that it wrote last, as torch's do."""

    def get_last_lr(self) -> list[Any]: ...


class Mpu(Protocol):
    """Describes a script's model parallel unit, as Megatron's: its data- and model-parallel groups."""

    def get_data_parallel_group(self) -> ProcessGroup: ...

    def get_data_parallel_rank(self) -> int: ...

    def get_data_parallel_world_size(self) -> int: ...

    def get_model_parallel_group(self) -> ProcessGroup: ...

    def get_model_parallel_rank(self) -> int: ...

    def get_model_parallel_world_size(self) -> int: ...
