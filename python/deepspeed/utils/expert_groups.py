"""Makes groups of ranks that share experts.

They are for a script's own layers, since the engine does not train with expert parallelism. A set of groups is named "ep_size_N": N
adjacent ranks hold all experts together (expert parallel), and ranks with the same experts average their gradients (expert data
parallel).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch.distributed as dist

from deepspeed._errors import NotSupportedError
from deepspeed.utils.bwc import bwc_pipeline_parallel_world_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    import torch
    from torch.distributed import ProcessGroup

    from deepspeed._types import Mpu


@dataclass
class _OfRank:
    """Holds this rank's group of one kind."""

    group: ProcessGroup
    ranks: list[int]


_expert_parallel: dict[str, _OfRank] = {}  # by name
_expert_data_parallel: dict[str, _OfRank] = {}
_world: ProcessGroup | None = None  # the default group under which they were made


def _known() -> tuple[dict[str, _OfRank], dict[str, _OfRank]]:
    """Forgets the groups of a default group that was destroyed."""
    global _world
    now = dist.distributed_c10d._get_default_group() if dist.is_initialized() else None
    if now is not _world:
        _expert_parallel.clear()
        _expert_data_parallel.clear()
        _world = now
    return _expert_parallel, _expert_data_parallel


def ensure_divisibility(numerator: int, denominator: int) -> None:
    assert numerator % denominator == 0, f"{numerator} is not divisible by {denominator}"


def get_expert_parallel_ranks(
    world_size: int,
    tensor_parallel_size_: int,
    expert_parallel_size_: int,
    pipeline_parallel_size_: int = 1,
    use_data_before_expert_parallel_: bool = False,
) -> tuple[list[list[int]], list[list[int]]]:
    """Returns the ranks of expert-parallel groups, and of groups with the same experts.

    A data-parallel group has the ranks with the same position in tensor and pipeline parallelism. It is cut into runs of
    expert_parallel_size_ ranks; ranks at the same position of the runs hold the same experts. use_data_before_expert_parallel_: a run
    takes ranks as far apart as possible instead of adjacent ones.
    """
    ensure_divisibility(world_size, tensor_parallel_size_ * pipeline_parallel_size_)
    stage_size = world_size // pipeline_parallel_size_
    data_size = stage_size // tensor_parallel_size_
    ensure_divisibility(data_size, expert_parallel_size_)
    expert_parallel: list[list[int]] = []
    expert_data_parallel: list[list[int]] = []
    for stage_begin in range(0, world_size, stage_size):
        for first in range(stage_begin, stage_begin + tensor_parallel_size_):
            ranks = list(range(first, stage_begin + stage_size, tensor_parallel_size_))
            if use_data_before_expert_parallel_:
                apart = data_size // expert_parallel_size_
                ranks = [rank for begin in range(apart) for rank in ranks[begin::apart]]
            runs = [ranks[begin : begin + expert_parallel_size_] for begin in range(0, data_size, expert_parallel_size_)]
            expert_parallel.extend(runs)
            expert_data_parallel.extend(list(same) for same in zip(*runs))
    return expert_parallel, expert_data_parallel


def _own_of(all_ranks: Iterable[list[int]]) -> _OfRank:
    """Makes a group of each list, in the same order on all ranks. Returns this rank's group."""
    own = None
    for ranks in all_ranks:
        group: Any = dist.new_group(ranks)
        if dist.get_rank() in ranks:
            own = _OfRank(group, ranks)
    assert own is not None
    return own


def create(
    size: int,
    mp_size: int | None,
    pp_size: int | None,
    mp_mode: str,
    use_data_before_expert_parallel: bool,
    folding_spec: object,
    mpu: Mpu | None,
) -> None:
    """Makes the groups "ep_size_<size>" unless they exist. Collective."""
    assert dist.is_initialized(), "dist is not initialized"
    if folding_spec is not None:
        raise NotSupportedError("_create_expert_and_data_parallel(folding_spec=...) is not supported; leave it out")
    expert_parallel, expert_data_parallel = _known()
    name = f"ep_size_{size}"
    if name in expert_parallel:
        return
    tensor_size = mp_size if mp_size is not None and mp_mode == "tp" else 1
    pipe_size = pp_size if pp_size is not None else bwc_pipeline_parallel_world_size(mpu)
    sharing, holding_same = get_expert_parallel_ranks(dist.get_world_size(), tensor_size, size, pipe_size, use_data_before_expert_parallel)
    expert_data_parallel[name] = _own_of(holding_same)
    expert_parallel[name] = _own_of(sharing)


def _find(which: Mapping[str, _OfRank], name: str) -> _OfRank:
    assert name in which, f"expert parallel group {name!r} is not initialized: _create_expert_and_data_parallel() makes it"
    return which[name]


def expert_parallel(name: str) -> _OfRank:
    """Returns the group that holds all experts together, with its ranks."""
    return _find(_known()[0], name)


def expert_data_parallel(name: str) -> _OfRank:
    """Returns the group that holds this rank's experts, with its ranks."""
    return _find(_known()[1], name)


def expert_parallel_groups() -> dict[str, ProcessGroup]:
    return {name: own.group for name, own in _known()[0].items()}


def expert_data_parallel_groups() -> dict[str, ProcessGroup]:
    return {name: own.group for name, own in _known()[1].items()}


def max_size() -> int | None:
    """Returns the size of the largest expert-parallel group; None if there is none."""
    return max((len(own.ranks) for own in _known()[0].values()), default=None)


def require_whole_experts(named_parameters: Iterable[tuple[str, torch.Tensor]]) -> None:
    """Raises NotSupportedError if ranks hold different experts. The engine averages gradients over all ranks."""
    for name, param in named_parameters:
        group = getattr(param, "group_name", None)
        if getattr(param, "allreduce", True) or group not in _known()[0]:
            continue
        size = len(expert_parallel(group).ranks)
        if size > 1:
            raise NotSupportedError(
                f"parameter {name!r} belongs to an expert of the group {group!r}, whose {size} ranks hold other experts each: "
                "expert parallelism does not exist; give every rank all experts, and partition them by ZeRO stage 3"
            )
