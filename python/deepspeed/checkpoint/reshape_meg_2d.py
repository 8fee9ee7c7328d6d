"""Maps positions of pipeline and tensor parallelism to ranks, and reduces the degrees."""

from __future__ import annotations

from deepspeed.checkpoint.reshape_utils import partition_data


class meg_2d_parallel_map:
    """Holds a list of ranks for each (pipeline index, tensor index)."""

    def __init__(self, pp_degree: int, tp_degree: int) -> None:
        self.pp_degree = pp_degree
        self.tp_degree = tp_degree
        self.map: dict[tuple[int, int], list[int]] = {}

    def simple_init(self) -> None:
        """Gives each position one rank; adjacent ranks have the same pipeline index."""
        for rank in range(self.pp_degree * self.tp_degree):
            self.map[divmod(rank, self.tp_degree)] = [rank]

    def add_data(self, pp_index: int, tp_index: int, data: list[int]) -> None:
        assert isinstance(data, list)
        self._check(pp_index, tp_index)
        self.map.setdefault((pp_index, tp_index), []).extend(data)

    def get_data(self, pp_index: int | None = None, tp_index: int | None = None) -> list[int]:
        """Returns the ranks of a position, in order. None means all indices."""
        self._check(pp_index, tp_index)
        pp_indices = range(self.pp_degree) if pp_index is None else [pp_index]
        tp_indices = range(self.tp_degree) if tp_index is None else [tp_index]
        return [rank for pp in pp_indices for tp in tp_indices for rank in self.map[pp, tp]]

    def print_data(self, tag: object) -> None:
        print(tag)
        for (pp_index, tp_index), ranks in self.map.items():
            print(f"{pp_index},{tp_index} = {ranks}")

    def _check(self, pp_index: int | None, tp_index: int | None) -> None:
        assert pp_index is None or pp_index < self.pp_degree
        assert tp_index is None or tp_index < self.tp_degree


def _reshape_tp_dimension(old_2d_map: meg_2d_parallel_map, new_tp_degree: int) -> meg_2d_parallel_map:
    new = meg_2d_parallel_map(old_2d_map.pp_degree, new_tp_degree)
    for pp_index in range(old_2d_map.pp_degree):
        for tp_index, ranks in enumerate(partition_data(old_2d_map.get_data(pp_index=pp_index), new_tp_degree)):
            new.add_data(pp_index, tp_index, ranks)
    return new


def _reshape_pp_dimension(old_2d_map: meg_2d_parallel_map, new_pp_degree: int) -> meg_2d_parallel_map:
    new = meg_2d_parallel_map(new_pp_degree, old_2d_map.tp_degree)
    for tp_index in range(old_2d_map.tp_degree):
        for pp_index, ranks in enumerate(partition_data(old_2d_map.get_data(tp_index=tp_index), new_pp_degree)):
            new.add_data(pp_index, tp_index, ranks)
    return new


def reshape_meg_2d_parallel(
    old_pp_degree: int, old_tp_degree: int, new_pp_degree: int, new_tp_degree: int, verbose: bool = False
) -> meg_2d_parallel_map:
    """Returns which old ranks each position of smaller degrees joins. It reduces tensor parallelism first, then pipeline parallelism."""
    assert new_pp_degree <= old_pp_degree
    assert new_tp_degree <= old_tp_degree
    result = meg_2d_parallel_map(old_pp_degree, old_tp_degree)
    result.simple_init()
    if new_tp_degree != old_tp_degree:
        result = _reshape_tp_dimension(result, new_tp_degree)
    if new_pp_degree != old_pp_degree:
        result = _reshape_pp_dimension(result, new_pp_degree)
    if verbose:
        result.print_data("reshaped_2d_map:")
    return result


def get_mpu_ranks(
    tp_size: int = 1, pp_size: int = 1, dp_size: int = 1, virtual_pp_size: int | None = None
) -> tuple[list[list[int]], list[list[int]], list[list[int]]]:
    """Returns the ranks of the tensor, pipeline and data parallel groups. Adjacent ranks are in the same tensor group."""
    world_size = tp_size * pp_size * dp_size
    stage_size = world_size // pp_size
    data = [
        list(range(stage * stage_size + tensor, (stage + 1) * stage_size, tp_size)) for stage in range(pp_size) for tensor in range(tp_size)
    ]
    pipeline = [[ranks[index] for ranks in data] for index in range(dp_size)]
    tensors = [list(range(begin, begin + tp_size)) for begin in range(0, world_size, tp_size)]
    return tensors, pipeline, data
