"""Ranks as points of a grid whose axes are kinds of parallelism, the last one varying fastest."""
import collections
import itertools

import torch.distributed as dist


class ProcessTopology:
    """Maps ranks to coordinates and back."""

    def __init__(self, axes, dims):
        self.axes = axes
        self.dims = dims
        self.ProcessCoord = collections.namedtuple("ProcessCoord", axes)
        self._coords = [self.ProcessCoord(*coord) for coord in itertools.product(*map(range, dims))]
        self.mapping = {coord: rank for rank, coord in enumerate(self._coords)}

    def get_rank(self, **coord_kwargs):
        """Returns the rank at a whole coordinate."""
        if len(coord_kwargs) != len(self.axes):
            raise ValueError("get_rank() does not support slices. Use filter_match())")
        coord = self.ProcessCoord(**coord_kwargs)
        assert coord in self.mapping, f"key {coord_kwargs} invalid"
        return self.mapping[coord]

    def get_axis_names(self):
        return self.axes

    def get_rank_repr(self, rank, omit_axes=["data", "pipe"], inner_sep="_", outer_sep="-"):
        """Returns a rank's place as a part of file names, as "model_00"."""
        coord = self.get_coord(rank)
        return outer_sep.join(f"{axis}{inner_sep}{getattr(coord, axis):02d}" for axis in self.axes if axis not in omit_axes)

    def get_dim(self, axis):
        """Returns the size of an axis; 0 where there is none of the name."""
        return self.dims[self.axes.index(axis)] if axis in self.axes else 0

    def get_coord(self, rank):
        if not 0 <= rank < len(self._coords):
            raise ValueError(f"rank {rank} not found in topology.")
        return self._coords[rank]

    def get_axis_comm_lists(self, axis):
        """Returns the lists of ranks that differ in this axis alone."""
        if axis not in self.axes:
            return []
        lists = collections.defaultdict(list)
        for rank, coord in enumerate(self._coords):
            lists[tuple(value for name, value in zip(self.axes, coord) if name != axis)].append(rank)
        return [lists[key] for key in sorted(lists)]

    def filter_match(self, **filter_kwargs):
        """Returns the ranks at these values of some axes."""
        return [
            rank
            for rank, coord in enumerate(self._coords)
            if all(getattr(coord, axis) == value for axis, value in filter_kwargs.items())
        ]

    def get_axis_list(self, axis, idx):
        """Returns the ranks at one value of one axis."""
        return self.filter_match(**{axis: idx})

    def world_size(self):
        return len(self._coords)

    def __str__(self):
        return str(self.mapping)


class PipeDataParallelTopology(ProcessTopology):
    """Has stages, and replicas of each; replicas are neighbours."""

    def __init__(self, num_pp, num_dp):
        super().__init__(axes=["pipe", "data"], dims=[num_pp, num_dp])


class PipeModelDataParallelTopology(ProcessTopology):
    """Has stages, replicas of each, and slices of each replica; slices are neighbours."""

    def __init__(self, num_pp, num_mp, num_dp):
        super().__init__(axes=["pipe", "data", "model"], dims=[num_pp, num_dp, num_mp])


def _prime_factors(N):
    """Returns the factors in ascending order."""
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
    """Makes the process groups of a topology, and answers as an mpu object does. All ranks make it together.

    "model" in the names of the mpu means all ranks that hold one replica of the model, "slice" tensor parallelism.
    """

    def __init__(self, topology=None, process_group=None):
        self.global_rank = dist.get_rank()
        self.world_size = dist.get_world_size()
        self._topo = topology if topology is not None else _default_topology(self.world_size)
        self.data_parallel_size = max(self._topo.get_dim("data"), 1)
        self.pipe_parallel_size = max(self._topo.get_dim("pipe"), 1)
        self.model_parallel_size = max(self._topo.get_dim("model"), 1)
        self.slice_parallel_size = self.model_parallel_size
        assert self._is_grid_valid(), "Invalid Grid"
        self.stage_id = self.get_stage_id()
        self.data_parallel_id = self.get_data_parallel_id()
        self.is_first_stage = self.stage_id == 0
        self.is_last_stage = self.stage_id == self.pipe_parallel_size - 1
        self._make_groups()

    def _make_groups(self):
        replicas = [self._topo.get_axis_list("data", index) for index in range(self.data_parallel_size)]
        ranks, self.ds_model_proc_group = self._own(replicas)
        self.ds_model_world_size, self.ds_model_rank = len(ranks), ranks.index(self.global_rank)
        self.dp_groups = self._topo.get_axis_comm_lists("data")
        self.dp_group, self.dp_proc_group = self._own(self.dp_groups)
        self.pipe_groups = self._topo.get_axis_comm_lists("pipe")
        self.pp_group, self.pp_proc_group = self._own(self.pipe_groups)
        self.p2p_groups = self._build_p2p_groups()
        singles = [[rank] for rank in range(self.world_size)]
        self.model_groups = self._topo.get_axis_comm_lists("model") if self.model_parallel_size > 1 else singles
        self.slice_group, self.slice_proc_group = self._own(self.model_groups)

    def _own(self, lists):
        """Makes a group of each list, on all ranks in one order, and returns this rank's."""
        mine = None
        for ranks in lists:
            group = dist.new_group(ranks=ranks)
            if self.global_rank in ranks:
                mine = (ranks, group)
        return mine

    def _build_p2p_groups(self):
        """Returns for each rank the pair of itself and its next stage, the last stage's being the first."""
        following = {rank: ranks[(index + 1) % len(ranks)] for ranks in self.pipe_groups for index, rank in enumerate(ranks)}
        return [[rank, following[rank]] for rank in range(self.world_size)]

    def _is_grid_valid(self):
        return self._topo.world_size() == self.world_size

    def get_stage_id(self):
        return self._topo.get_coord(rank=self.global_rank).pipe

    def get_data_parallel_id(self):
        return self._topo.get_coord(rank=self.global_rank).data

    def stage_to_global(self, stage_id, **kwargs):
        """Returns the rank of a stage at this rank's other coordinates, or at the given ones."""
        return self._topo.get_rank(**self._topo.get_coord(self.global_rank)._replace(pipe=stage_id, **kwargs)._asdict())

    def topology(self):
        return self._topo

    # --- as an mpu ---

    def get_global_rank(self):
        return self.global_rank

    def get_pipe_parallel_rank(self):
        return self.stage_id

    def get_pipe_parallel_world_size(self):
        return self.pipe_parallel_size

    def get_pipe_parallel_group(self):
        return self.pp_proc_group

    get_pipeline_model_parallel_rank = get_pipe_parallel_rank
    get_pipeline_model_parallel_world_size = get_pipe_parallel_world_size
    get_pipeline_model_parallel_group = get_pipe_parallel_group

    def get_data_parallel_rank(self):
        return self.data_parallel_id

    def get_data_parallel_world_size(self):
        return self.data_parallel_size

    def get_data_parallel_group(self):
        return self.dp_proc_group

    def get_data_parallel_group_ranks(self):
        return self.dp_group

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

    get_tensor_model_parallel_rank = get_slice_parallel_rank
    get_tensor_model_parallel_world_size = get_slice_parallel_world_size
    get_tensor_model_parallel_group = get_slice_parallel_group


def _default_topology(world_size):
    """Gives the prime factors of the size to stages and replicas in turn."""
    sizes = [1, 1]
    for index, factor in enumerate(_prime_factors(world_size)):
        sizes[index % 2] *= factor
    return PipeDataParallelTopology(num_pp=sizes[0], num_dp=sizes[1])
