"""Reads and writes what the optimizer holds of one parameter, during training. All ranks must call the full versions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch

from deepspeed import _core, _world

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from deepspeed.runtime.engine import DeepSpeedEngine


@dataclass
class fragment_address:
    """Says where a parameter's elements are in a flat partition. Optimizer files hold such objects."""

    numel: int
    start: int


def engine_of(param: object) -> DeepSpeedEngine | None:
    """Returns the living engine that has the parameter, or None."""
    for engine in cast("list[DeepSpeedEngine]", list(_world.engines)):
        if engine.__dict__.get("_core") is None:
            continue
        ids = engine.__dict__.get("_param_ids")
        if ids is None:
            ids = engine.__dict__["_param_ids"] = {id(held) for held in engine._names.values()}
        if id(param) in ids:
            return engine
    return None


def _core_of(param: torch.Tensor) -> _core.TrainingEngine | None:
    engine = engine_of(param)
    return None if engine is None or engine.optimizer is None else engine._core


def _core_after_backward(param: torch.Tensor) -> _core.TrainingEngine | None:
    """Returns the core after finishing a script's own loss.backward(), so that gradients are reduced. Collective after such a backward."""
    engine = engine_of(param)
    if engine is None or engine.optimizer is None:
        return None
    if not engine.pipeline_parallelism and torch._C._current_graph_task_id() == -1:  # -1: no backward is running
        engine._core.finish_backward()
    return engine._core


def safe_get_full_fp32_param(param: torch.Tensor) -> torch.Tensor | None:
    """Returns the whole master weights in fp32, in the parameter's shape. Collective. Returns None if no optimizer trains the parameter."""
    core = _core_of(param)
    return None if core is None or not param.requires_grad else _core.safe_get_full_fp32_param(core, param)


def safe_set_full_fp32_param(param: torch.Tensor, value: torch.Tensor) -> None:
    """Writes the whole master weights, and the parameter with them. Collective. value: of its shape, any dtype."""
    core = _core_of(param)
    if core is not None:
        _core.safe_set_full_fp32_param(core, param, value)


def safe_get_full_optimizer_state(param: torch.Tensor, optim_state_key: str) -> torch.Tensor | None:
    """Returns a whole optimizer state in fp32, such as "exp_avg", in the parameter's shape. Collective. Returns None before a step."""
    core = _core_of(param)
    return None if core is None or not param.requires_grad else _core.safe_get_full_optimizer_state(core, param, optim_state_key)


def safe_set_full_optimizer_state(param: torch.Tensor, value: torch.Tensor, optim_state_key: str) -> None:
    """Writes a whole optimizer state. Collective. value: of the parameter's shape. Raises UsageError for an unknown state."""
    core = _core_of(param)
    if core is not None:
        _core.safe_set_full_optimizer_state(core, param, value, optim_state_key)


def safe_get_full_grad(param: torch.Tensor) -> torch.Tensor | None:
    """Returns the whole reduced gradient in the parameter's shape, between backward and step. Collective. Returns None if there is none."""
    core = _core_after_backward(param)
    if core is None:
        return param.grad
    return _defined(_core.safe_get_full_grad(core, param)) if param.requires_grad else None


def safe_set_full_grad(param: torch.Tensor, value: torch.Tensor) -> None:
    """Writes the whole gradient, between backward and step. Collective. value: of the parameter's shape."""
    core = _core_after_backward(param)
    if core is None:
        param.grad = value
    else:
        _core.safe_set_full_grad(core, param, value)


def safe_get_local_fp32_param(param: torch.Tensor) -> torch.Tensor | None:
    """Returns this rank's share of stage 3's master weights, flat."""
    core = _core_of(param)
    return None if core is None or not param.requires_grad else _core.safe_get_local_fp32_param(core, param)


def safe_set_local_fp32_param(param: torch.Tensor, value: torch.Tensor) -> None:
    """Writes this rank's share of stage 3's master weights. value: flat, of the share's size. Raises UsageError without an engine."""
    _core.safe_set_local_fp32_param(_required(param), param, value)


def safe_get_local_optimizer_state(param: torch.Tensor, optim_state_key: str) -> torch.Tensor | None:
    """Returns this rank's share of an optimizer state at stage 3, flat."""
    core = _core_of(param)
    return None if core is None or not param.requires_grad else _core.safe_get_local_optimizer_state(core, param, optim_state_key)


def safe_set_local_optimizer_state(param: torch.Tensor, value: torch.Tensor, optim_state_key: str) -> None:
    """Writes this rank's share of an optimizer state at stage 3."""
    _core.safe_set_local_optimizer_state(_required(param), param, value, optim_state_key)


def safe_get_local_grad(param: torch.Tensor) -> torch.Tensor | None:
    """Returns this rank's share of the reduced gradient at stage 3, flat."""
    core = _core_after_backward(param)
    return None if core is None or not param.requires_grad else _defined(_core.safe_get_local_grad(core, param))


def safe_set_local_grad(param: torch.Tensor, value: torch.Tensor) -> None:
    """Writes this rank's share of the reduced gradient at stage 3."""
    core = _required(param)
    _core_after_backward(param)
    _core.safe_set_local_grad(core, param, value)


def safe_update_full_grad_vectorized(
    param_list: Iterable[torch.Tensor], update_func: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
) -> None:
    """Calls update_func(grad, param) with each whole gradient, and writes its results. Collective."""
    for param in param_list:
        grad = safe_get_full_grad(param)
        if grad is not None:
            safe_set_full_grad(param, update_func(grad, param))


def _required(param: torch.Tensor) -> _core.TrainingEngine:
    core = _core_of(param)
    if core is None:
        from deepspeed._errors import UsageError

        raise UsageError("the tensor is no parameter of a living engine that has an optimizer")
    return core


def _defined(tensor: object) -> torch.Tensor | None:
    return tensor if isinstance(tensor, torch.Tensor) else None
