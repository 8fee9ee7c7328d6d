"""Describes the engine as its optimizer, loss scaler and schedule see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    import torch
    from torch.distributed import ProcessGroup

    from deepspeed._client_optimizer import OptimizerPlan
    from deepspeed._core import TrainingEngine
    from deepspeed.runtime.engine_parts.module_calls import ModuleCalls

_Value = TypeVar("_Value")


class Owner(Protocol):
    """Declares members of DeepSpeedEngine that its own objects use."""

    _names: dict[str, torch.nn.Parameter]
    _plan: OptimizerPlan
    _module_calls: ModuleCalls

    @property
    def _core(self) -> TrainingEngine: ...

    @property
    def _dtype(self) -> torch.dtype: ...

    @property
    def _num_shards(self) -> int: ...

    @property
    def data_parallel_group(self) -> ProcessGroup | None: ...

    @property
    def dp_world_size(self) -> int: ...

    @property
    def global_rank(self) -> int: ...

    @property
    def global_steps(self) -> int: ...

    def _key(self, kind: type[_Value], path: str) -> _Value: ...

    def step(self) -> object: ...

    def zero_grad(self) -> None: ...

    def loss_scale(self) -> float: ...

    def dynamic_loss_scale(self) -> bool: ...

    def fp16_enabled(self) -> bool: ...

    def torch_autocast_enabled(self) -> bool: ...

    def zero_optimization_stage(self) -> int: ...

    def zero_cpu_offload(self) -> bool: ...

    def scheduler_name(self) -> str | None: ...

    def scheduler_params(self) -> Mapping[str, Any] | None: ...
