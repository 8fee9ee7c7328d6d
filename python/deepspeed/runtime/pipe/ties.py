"""Shares modules between layers of several stages. Each stage has its own copy, and the tied weights are kept equal."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

import torch.distributed as dist

from deepspeed.runtime.pipe.layer_specs import TiedLayerSpec
from deepspeed.runtime.pipe.part import PipelinePart

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    import torch
    from torch.distributed import ProcessGroup

    from deepspeed.runtime.pipe.topology import PipelineParallelGrid


def tied_weight(module: torch.nn.Module, name: str) -> torch.Tensor:
    """Returns a weight by its dotted name."""
    weight: torch.Tensor = operator.attrgetter(name)(module)
    return weight


def make_tied_comms(module: PipelinePart) -> dict[str, dict[str, Any]]:
    """Returns for each key on this stage the ranks, group, weight names and module. Collective.

    The ranks share the module. All ranks must call it, since all of them make the groups.
    """
    comms: dict[str, dict[str, Any]] = {}
    if module.num_pipeline_stages() == 1:
        return comms
    grid, layers = module.mpu(), module._layer_specs
    for key in sorted({layer.key for layer in layers if isinstance(layer, TiedLayerSpec)}):
        sharing = [index for index, layer in enumerate(layers) if isinstance(layer, TiedLayerSpec) and layer.key == key]
        stages = sorted({module.stage_owner(index) for index in sharing})
        for others in _places_beside_stages(grid):
            ranks = [grid.stage_to_global(stage_id=stage, **others) for stage in stages]
            group = dist.new_group(ranks=ranks)
            if module.global_rank in ranks:
                tied, names = module.tied_modules[key], module.tied_weight_attrs[key]
                comms[key] = {"ranks": ranks, "group": group, "weight_attr": names, "module": tied}
                _mark_copies(tied, is_copy=module.global_rank != ranks[0])
    return comms


def _places_beside_stages(grid: PipelineParallelGrid) -> Iterator[dict[str, int]]:
    """Yields the coordinates on the axes other than "pipe"."""
    slices = grid.get_slice_parallel_world_size()
    for data in range(grid.data_parallel_size):
        for index in range(slices):
            yield {"data": data, "model": index} if slices > 1 else {"data": data}


def _mark_copies(module: torch.nn.Module, is_copy: bool) -> None:
    for param in module.parameters():
        param.__dict__["ds_pipe_replicated"] = is_copy


class TiedWeights(PipelinePart):
    """Keeps a PipelineModule's tied weights equal."""

    def get_tied_weights_and_groups(self) -> list[tuple[torch.Tensor, ProcessGroup]]:
        """Returns [(weight, process group of the ranks that share it)]."""
        return [(tied_weight(comm["module"], name), comm["group"]) for comm in self.tied_comms.values() for name in comm["weight_attr"]]

    def allreduce_tied_weight_gradients(self) -> None:
        """Sums the weights' .grad over the stages. An engine does that itself before each update."""
        for weight, group in self.get_tied_weights_and_groups():
            gradient: Any = weight.grad  # a tensor after a backward
            dist.all_reduce(gradient, group=group)

    def _synchronize_tied_weights(self) -> None:
        """Copies the weights from the first stage that has them to the others."""
        for comm in self.tied_comms.values():
            for name in comm["weight_attr"]:
                dist.broadcast(tied_weight(comm["module"], name).data, src=min(comm["ranks"]), group=comm["group"])
