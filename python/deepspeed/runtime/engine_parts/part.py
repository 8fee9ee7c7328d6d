"""Declares what the parts of an engine share, for type checkers and readers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    import torch

    from deepspeed._client_optimizer import OptimizerPlan
    from deepspeed._core import TrainingEngine
    from deepspeed._types import Mpu
    from deepspeed.runtime.base_optimizer import DeepSpeedOptimizer
    from deepspeed.utils.timer import ThroughputTimer


class EnginePart:
    """Declares what DeepSpeedEngine has, for its parts."""

    module: torch.nn.Module
    optimizer: DeepSpeedOptimizer | None
    config: Mapping[str, Any]  # as the script has passed it
    client_optimizer: torch.optim.Optimizer | Callable[[Any], torch.optim.Optimizer] | None
    mpu: Mpu | None
    _core: TrainingEngine
    _plan: OptimizerPlan
    _names: dict[str, torch.nn.Parameter]
    _tput_timer: ThroughputTimer | None
