"""Arranges ranks in a grid whose axes are kinds of parallelism: the core's topology. The last axis varies fastest."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

import torch.distributed as dist

from deepspeed import _core

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from torch.distributed import ProcessGroup
    from typing_extensions import Self


class ProcessTopology:
    """Maps ranks to coordinates and back."""

    def __init__(self, axes: Sequence[str], dims: Sequence[int]) -> None:
        self.axes = axes
        self.dims = dims
        made: Any = collections.namedtuple("ProcessCoord", axes)  # type: ignore[misc]  # its fields are known here alone
        self.ProcessCoord = made
        self._core = _core.ProcessTopology(list(axes), list(dims))
        self._coords = [made(*coord) for coord in self._core.coords()]
        self.mapping = {coord: rank for rank, coord in enumerate(self._coords)}

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self)._of, (self.axes, self.dims)

    @classmethod
    def _of(cls, axes: Sequence[str], dims: Sequence[int]) -> Self:
        """Makes a topology of a subclass, whose constructor may take other arguments."""
        made = cls.__new__(cls)
        ProcessTopology.__init__(made, axes, dims)
        return made

    def get_rank(self, **coord_kwargs: int) -> int:
        """Returns the rank at a complete coordinate."""
        if len(coord_kwargs) != len(self.axes):
            raise ValueError("get_rank() does not support slices. Use filter_match())")
        return self._core.get_rank(coord_kwargs)

    def get_axis_names(self) -> Sequence[str]:
        return self.axes

    def get_rank_repr(self, rank: int, omit_axes: Sequence[str] = ["data", "pipe"], inner_sep: str = "_", outer_sep: str = "-") -> str:
        """Returns a rank's coordinates for file names, such as "model_00"."""
        return self._core.get_rank_repr(rank, list(omit_axes), inner_sep, outer_sep)

    def get_dim(self, axis: str) -> int:
        """Returns the size of an axis; 0 if there is no such axis."""
        return self._core.get_dim(axis)

    def get_coord(self, rank: int) -> Any:
        if not 0 <= rank < len(self._coords):
            raise ValueError(f"rank {rank} not found in topology.")
        return self._coords[rank]

    def get_axis_comm_lists(self, axis: str) -> list[list[int]]:
        """Returns the lists of ranks that differ only on this axis."""
        return self._core.get_axis_comm_lists(axis)

    def filter_match(self, **filter_kwargs: int) -> list[int]:
        """Returns the ranks with these coordinates on some axes."""
        return self._core.filter_match(filter_kwargs)

    def get_axis_list(self, axis: str, idx: int) -> list[int]:
        """Returns the ranks with one coordinate on one axis."""
        return self._core.filter_match({axis: idx})

    def world_size(self) -> int:
        return self._core.world_size()

    def __str__(self) -> str:
        return str(self.mapping)


class PipeDataParallelTopology(ProcessTopology):
    """Arranges stages and their replicas; replicas are adjacent."""

    def __init__(self, num_pp: int, num_dp: int) -> None:
        super().__init__(axes=["pipe", "data"], dims=[num_pp, num_dp])


class PipeModelDataParallelTopology(ProcessTopology):
    """Arranges stages, their replicas and the replicas' slices; slices are adjacent."""

    def __init__(self, num_pp: int, num_mp: int, num_dp: int) -> None:
        super().__init__(axes=["pipe", "data", "model"], dims=[num_pp, num_dp, num_mp])


def _prime_factors(N: int) -> list[int]:
    """Returns the prime factors in ascending order."""
    if N <= 0:
        raise ValueError("Values must be strictly positive.")
    factors, candidate = [], 2
    while N > 1:
        while N % candidate == 0:
            factors.append(candidate)
            N //= candidate
        candidate += 1
    return factors


class PipelineParallelGrid:
    """Makes the process groups of a topology, and serves as an mpu. Collective.

    In the mpu's names "model" means all ranks that hold one replica of the model, and "slice" means tensor parallelism.
    """

    def __init__(self, topology: ProcessTopology | None = None, process_group: object = None) -> None:
        self.global_rank = dist.get_rank()
        self.world_size = dist.get_world_size()
        self._topo = topology if topology is not None else _default_topology(self.world_size)
        assert self._is_grid_valid(), "Invalid Grid"
        self._ranks = ranks = _core.ParallelRanks(self._topo._core, self.global_rank)
        self.data_parallel_size = ranks.data_parallel_size()
        self.pipe_parallel_size = ranks.pipe_parallel_size()
        self.model_parallel_size = self.slice_parallel_size = ranks.slice_parallel_size()
        self.stage_id = self.get_stage_id()
        self.data_parallel_id = self.get_data_parallel_id()
        self.is_first_stage = self.stage_id == 0
        self.is_last_stage = self.stage_id == self.pipe_parallel_size - 1
        self._make_groups()

    def _make_groups(self) -> None:
        replica, self.ds_model_proc_group = self._own(self._ranks.model_parallel_groups())
        self.ds_model_world_size, self.ds_model_rank = len(replica), replica.index(self.global_rank)
        self.dp_groups = self._ranks.data_parallel_groups()
        self.dp_group, self.dp_proc_group = self._own(self.dp_groups)
        self.pipe_groups = self._ranks.pipe_groups()
        self.pp_group, self.pp_proc_group = self._own(self.pipe_groups)
        self.p2p_groups = self._ranks.p2p_groups()
        self.model_groups = self._ranks.slice_groups()
        self.slice_group, self.slice_proc_group = self._own(self.model_groups)

    def _own(self, lists: Sequence[list[int]]) -> tuple[list[int], ProcessGroup]:
        """Makes a group of each list, in the same order on all ranks. Returns this rank's group."""
        mine = None
        for ranks in lists:
            group: Any = dist.new_group(ranks=ranks)
            if self.global_rank in ranks:
                mine = (ranks, group)
        assert mine is not None
        return mine

    def _is_grid_valid(self) -> bool:
        return self._topo.world_size() == self.world_size

    def get_stage_id(self) -> int:
        return self._ranks.stage_id()

    def get_data_parallel_id(self) -> int:
        return self._ranks.data_parallel_id()

    def stage_to_global(self, stage_id: int, **kwargs: int) -> int:
        """Returns the rank of a stage at the given coordinates, which default to this rank's."""
        return self._ranks.stage_to_global(stage_id, kwargs)

    def topology(self) -> ProcessTopology:
        return self._topo

    # --- as an mpu ---

    def get_global_rank(self) -> int:
        return self.global_rank

    def get_pipe_parallel_rank(self) -> int:
        return self.stage_id

    def get_pipe_parallel_world_size(self) -> int:
        return self.pipe_parallel_size

    def get_pipe_parallel_group(self) -> ProcessGroup:
        return self.pp_proc_group

    get_pipeline_model_parallel_rank = get_pipe_parallel_rank
    get_pipeline_model_parallel_world_size = get_pipe_parallel_world_size
    get_pipeline_model_parallel_group = get_pipe_parallel_group

    def get_data_parallel_rank(self) -> int:
        return self.data_parallel_id

    def get_data_parallel_world_size(self) -> int:
        return self.data_parallel_size

    def get_data_parallel_group(self) -> ProcessGroup:
        return self.dp_proc_group

    def get_data_parallel_group_ranks(self) -> list[int]:
        return self.dp_group

    def get_model_parallel_rank(self) -> int:
        return self.ds_model_rank

    def get_model_parallel_world_size(self) -> int:
        return self.ds_model_world_size

    def get_model_parallel_group(self) -> ProcessGroup:
        return self.ds_model_proc_group

    def get_slice_parallel_rank(self) -> int:
        return self._ranks.slice_parallel_rank()

    def get_slice_parallel_world_size(self) -> int:
        return self.slice_parallel_size

    def get_slice_parallel_group(self) -> ProcessGroup:
        return self.slice_proc_group

    get_tensor_model_parallel_rank = get_slice_parallel_rank
    get_tensor_model_parallel_world_size = get_slice_parallel_world_size
    get_tensor_model_parallel_group = get_slice_parallel_group


def _default_topology(world_size: int) -> ProcessTopology:
    """Assigns the size's prime factors to stages and replicas in turn."""
    sizes = [1, 1]
    for index, factor in enumerate(_prime_factors(world_size)):
        sizes[index % 2] *= factor
    return PipeDataParallelTopology(num_pp=sizes[0], num_dp=sizes[1])
