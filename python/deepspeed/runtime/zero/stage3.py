"""Defines the optimizer of ZeRO stage 3."""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING, TypeVar

import torch.distributed as dist

from deepspeed.runtime.base_optimizer import ZeROOptimizer
from deepspeed.runtime.zero.partition_parameters import GatheredParameters
from deepspeed.utils.z3_leaf_module import z3_leaf_parameter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    import torch

    from deepspeed.runtime.engine_parts.module_calls import ModuleCalls

_Engine = TypeVar("_Engine", bound="torch.nn.Module")


class DeepSpeedZeroOptimizer_Stage3(ZeROOptimizer):
    """Shows the optimizer of ZeRO stage 3. Lists have one entry for each sub-group."""

    @property
    def fp16_groups(self) -> list[list[torch.Tensor]]:
        """The parameters."""
        return self._owned.params()

    @property
    def fp16_partitioned_groups_flat(self) -> list[torch.Tensor | None]:
        """This rank's shards of the parameters, in the model's dtype; None for those on a disk."""
        return self._owned.weights()

    @property
    def fp32_partitioned_groups_flat(self) -> list[torch.Tensor]:
        """This rank's shards of the master weights."""
        return self._owned.masters()

    @property
    def leaf_parameters(self) -> dict[torch.nn.Module, list[torch.Tensor]]:
        """Parameters that are gathered together: {leaf module: its parameters in the groups}."""
        found: dict[torch.nn.Module, list[torch.Tensor]] = {}
        param: Any  # this package adds its attribute
        for param in itertools.chain(*self.fp16_groups):
            if z3_leaf_parameter(param):
                found.setdefault(param.ds_z3_leaf_module, []).append(param)
        return found

    def get_fp32_grad_partitions(self) -> dict[int, dict[int, torch.Tensor]]:
        """Returns {sub-group: {index in it: this rank's share of the reduced gradient}}. The shares are in fp32, with padding."""
        return {group: {index: grad.float() for index, grad in enumerate(grads)} for group, grads in self.averaged_gradients.items()}

    def _get_norm_groups(self) -> list[torch.Tensor]:
        """Returns each sub-group's L2 norm of the reduced gradients, over all ranks. Collective."""
        norms = []
        share = self._engine()._num_shards / self._engine().dp_world_size  # ranks that hold the same shard count it once together
        for gradients in self.averaged_gradients.values():
            square: Any = sum(gradient.float().square().sum() for gradient in gradients)
            dist.all_reduce(square)
            norms.append((square * share).sqrt())
        return norms

    @property
    def parameter_offload(self) -> ModuleCalls:
        """Returns the object with the hooks on the modules: forward_hooks and backward_hooks."""
        return self._engine()._module_calls


@contextlib.contextmanager
def unwrap_model_for_generation(model: _Engine) -> Iterator[_Engine]:
    """Keeps all parameters of an engine whole within a scope, for generate(). Collective.

    Without it generate() would gather them for each token.
    """
    engine: Any = model
    calls: ModuleCalls = engine._module_calls
    is_watched = bool(calls.forward_hooks)
    with GatheredParameters(engine.parameters()):
        calls.stop()
        try:
            yield model
        finally:
            if is_watched:
                calls.watch(engine.module)
