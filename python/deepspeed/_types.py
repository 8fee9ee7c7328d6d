"""Types that annotations of this package name. No module imports it at run time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

from torch.distributed import ProcessGroup

Event: TypeAlias = tuple[str, Any, int]  # of a monitor: name, value, samples trained so far
CoreGroup: TypeAlias = tuple[dict[str, Any], Sequence[str], int]  # of the core: options, names of parameters, index of the client's group


class HasGroups(Protocol):
    """An optimizer, of torch or not, whose groups a schedule writes."""

    param_groups: list[dict[str, Any]]


class Schedule(Protocol):
    """What an engine can step as its `lr_scheduler`."""

    def step(self, *args: Any, **kwargs: Any) -> Any: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: Any, /) -> Any: ...


class RateSchedule(Schedule, Protocol):
    """A schedule that tells the rates that it has written last, as those of torch and of this package do."""

    def get_last_lr(self) -> list[Any]: ...


class Mpu(Protocol):
    """A script's model parallel unit, as Megatron's: the groups of ranks that share data or the model out."""

    def get_data_parallel_group(self) -> ProcessGroup: ...

    def get_data_parallel_rank(self) -> int: ...

    def get_data_parallel_world_size(self) -> int: ...

    def get_model_parallel_group(self) -> ProcessGroup: ...

    def get_model_parallel_rank(self) -> int: ...

    def get_model_parallel_world_size(self) -> int: ...
