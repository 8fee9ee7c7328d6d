"""Which coordinates a rank has on a grid of axes, such as pipeline, data and model."""
import itertools
from collections import namedtuple

import torch.distributed as dist


class ProcessTopology:
    """Maps ranks to coordinates. The last axis runs fastest: its neighbours have neighbouring ranks."""

    def __init__(self, axes, dims):
        self.axes = axes
        self.dims = dims
        self.ProcessCoord = namedtuple("ProcessCoord", axes)
        self.mapping = {
            self.ProcessCoord(*coord): rank for rank, coord in enumerate(itertools.product(*(range(size) for size in dims)))
        }

    def get_rank(self, **coord_kwargs):
        """Returns the rank of a coordinate, of which every axis must be given."""
        if len(coord_kwargs) != len(self.axes):
            raise ValueError("get_rank() does not support slices. Use filter_match())")
        key = self.ProcessCoord(**coord_kwargs)
        assert key in self.mapping, f"key {coord_kwargs} invalid"
        return self.mapping[key]

    def get_axis_names(self):
        return self.axes

    def get_rank_repr(self, rank, omit_axes=["data", "pipe"], inner_sep="_", outer_sep="-"):
        """Returns the rank's place on the axes that are not left out, e.g. "model_00"."""
        coord = self.get_coord(rank)
        return outer_sep.join(f"{axis}{inner_sep}{getattr(coord, axis):02d}" for axis in self.axes if axis not in omit_axes)

    def get_dim(self, axis):
        """Returns the number of ranks along an axis; 0 where there is none of the name."""
        return self.dims[self.axes.index(axis)] if axis in self.axes else 0

    def get_coord(self, rank):
        for coord, held in self.mapping.items():
            if held == rank:
                return coord
        raise ValueError(f"rank {rank} not found in topology.")

    def get_axis_comm_lists(self, axis):
        """Returns the lists of ranks that differ along the axis alone."""
        if axis not in self.axes:
            return []
        others = [name for name in self.axes if name != axis]
        lists = []
        for coord in itertools.product(*(range(self.get_dim(name)) for name in others)):
            fixed = dict(zip(others, coord))
            lists.append([self.get_rank(**fixed, **{axis: index}) for index in range(self.get_dim(axis))])
        return lists

    def filter_match(self, **filter_kwargs):
        """Returns the ranks whose coordinates have these values."""
        return [
            rank
            for coord, rank in sorted(self.mapping.items())
            if all(getattr(coord, name) == value for name, value in filter_kwargs.items())
        ]

    def get_axis_list(self, axis, idx):
        """Returns the ranks at a place of an axis."""
        return sorted(rank for coord, rank in self.mapping.items() if getattr(coord, axis) == idx)

    def world_size(self):
        return len(self.mapping)

    def __str__(self):
        return str(self.mapping)


def _prime_factors(N):
    """Returns the prime factors of a positive number, smallest first."""
    if N <= 0:
        raise ValueError("Factorize only positive integers")
    primes, divisor = [], 2
    while N > 1:
        while N % divisor == 0:
            primes.append(divisor)
            N //= divisor
        divisor += 1
    return primes


class PipeDataParallelTopology(ProcessTopology):
    """Has pipeline stages of data-parallel ranks, which are neighbours."""

    def __init__(self, num_pp, num_dp):
        super().__init__(axes=["pipe", "data"], dims=[num_pp, num_dp])


class PipeModelDataParallelTopology(ProcessTopology):
    """Has pipeline stages of data-parallel ranks of model-parallel ranks, which are neighbours."""

    def __init__(self, num_pp, num_mp, num_dp):
        super().__init__(axes=["pipe", "data", "model"], dims=[num_pp, num_dp, num_mp])


class PipelineParallelGrid:
    """Is what a model-parallel unit answers of a topology: groups of ranks, and this rank's place. Collective."""

    def __init__(self, topology=None, process_group=None):
        self.global_rank = dist.get_rank()
        self.world_size = dist.get_world_size()
        if topology is None:
            stages, replicas = 1, 1
            for index, factor in enumerate(_prime_factors(self.world_size)):
                if index % 2 == 0:
                    stages *= factor
                else:
                    replicas *= factor
            topology = PipeDataParallelTopology(num_dp=replicas, num_pp=stages)
        self._topo = topology
        self.data_parallel_size = max(topology.get_dim("data"), 1)
        self.pipe_parallel_size = max(topology.get_dim("pipe"), 1)
        self.model_parallel_size = max(topology.get_dim("model"), 1)
        self.slice_parallel_size = self.model_parallel_size
        assert self._is_grid_valid(), "Invalid Grid"
        self.stage_id = self.get_stage_id()
        self.data_parallel_id = self.get_data_parallel_id()
        self.dp_group, self.dp_proc_group = self._own_group(topology.get_axis_comm_lists("data"))
        self.pp_group, self.pp_proc_group = self._own_group(topology.get_axis_comm_lists("pipe"))
        self.is_first_stage = self.stage_id == 0
        self.is_last_stage = self.stage_id == self.pipe_parallel_size - 1
        replicas = [sorted(topology.get_axis_list("data", index)) for index in range(self.data_parallel_size)]
        self.ds_model_world_size, (self.ds_model_rank, self.ds_model_proc_group) = len(replicas[0]), self._rank_in(replicas)
        slices = topology.get_axis_comm_lists("model") or [[rank] for rank in range(self.world_size)]
        self.slice_group, self.slice_proc_group = self._own_group(slices)
        self.p2p_groups = self._build_p2p_groups()

    def _own_group(self, lists):
        """Makes a group of each list; returns this rank's list and group. Every rank makes all, in one order."""
        own = ([self.global_rank], None)
        for ranks in lists or [[rank] for rank in range(self.world_size)]:
            group = dist.new_group(ranks=ranks)
            if self.global_rank in ranks:
                own = (ranks, group)
        return own

    def _rank_in(self, lists):
        own = (-1, None)
        for ranks in lists:
            group = dist.new_group(ranks=ranks)
            if self.global_rank in ranks:
                own = (ranks.index(self.global_rank), group)
        return own

    def _is_grid_valid(self):
        size = 1
        for axis in self._topo.get_axis_names():
            size *= self._topo.get_dim(axis)
        return size == dist.get_world_size()

    def _build_p2p_groups(self):
        """Returns the pairs of neighbours on each pipeline, which is a ring."""
        pairs = [None] * self.world_size
        for ranks in self._topo.get_axis_comm_lists("pipe"):
            for index, rank in enumerate(ranks):
                pairs[rank] = [rank, ranks[(index + 1) % len(ranks)]]
        return pairs

    def get_stage_id(self):
        return getattr(self._topo.get_coord(rank=self.global_rank), "pipe", 0)

    def get_data_parallel_id(self):
        return getattr(self._topo.get_coord(rank=self.global_rank), "data", 0)

    def stage_to_global(self, stage_id, **kwargs):
        """Returns the rank of another stage at this rank's place of the other axes."""
        place = self._topo.get_coord(self.global_rank)._replace(pipe=stage_id, **kwargs)._asdict()
        return self._topo.get_rank(**place)

    def topology(self):
        return self._topo

    def get_global_rank(self):
        return self.global_rank

    def get_pipe_parallel_rank(self):
        return self.get_stage_id()

    def get_pipe_parallel_world_size(self):
        return self.pipe_parallel_size

    def get_pipe_parallel_group(self):
        return self.pp_proc_group

    def get_data_parallel_rank(self):
        return self.get_data_parallel_id()

    def get_data_parallel_world_size(self):
        return self.data_parallel_size

    def get_data_parallel_group(self):
        return self.dp_proc_group

    def get_model_parallel_rank(self):
        return self.ds_model_rank

    def get_model_parallel_world_size(self):
        return self.ds_model_world_size

    def get_model_parallel_group(self):
        return self.ds_model_proc_group

    def get_slice_parallel_rank(self):
        return getattr(self._topo.get_coord(rank=self.global_rank), "model", 0)

    def get_slice_parallel_world_size(self):
        return self.slice_parallel_size

    def get_slice_parallel_group(self):
        return self.slice_proc_group
