"""Writes and loads an optimizer's state_dict().

At stage 0 it is torch's: states by parameter number, in the parameters' shapes. From stage 1 on it is this rank's part, flat, with the
masters, as in DeepSpeed, and fits only the same rank of as many ranks. States of whole parameters, from a run without ZeRO or an
optimizer of torch, load at every stage. The engine's checkpoints have no such limits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch

from deepspeed import _core
from deepspeed._errors import UsageError
from deepspeed._slices import SCALAR
from deepspeed.utils.logging import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from deepspeed._core import TrainingEngine
    from deepspeed.runtime.optimizer_parts.owned_state import OwnedState
    from deepspeed.runtime.optimizer_parts.owner import Owner


class _Optimizer(Protocol):
    """Declares members of DeepSpeedOptimizer that the functions below use."""

    param_groups: list[dict[str, Any]]
    _engine: Callable[[], Owner]
    _given: list[int]
    _owned: OwnedState

    @property
    def _core(self) -> TrainingEngine: ...


def write(optimizer: _Optimizer) -> dict[str, Any]:
    """Returns the state for load(). Its tensors are the optimizer's own if they are in memory."""
    engine = optimizer._engine()
    if engine.zero_optimization_stage() > 0:
        return _write_part(optimizer, engine)
    groups, numbers = _numbered(optimizer)
    state = {numbers[id(param)]: _with_scalars(states) for param, states in optimizer._owned.states_of_params()}
    written = {"state": state, "param_groups": groups}
    if engine._dtype != torch.float32:
        written["fp32_groups"] = optimizer._owned.masters_of_params()
    return written


def load(optimizer: _Optimizer, state_dict: dict[str, Any]) -> None:
    """Loads options and states. Collective. Raises UsageError for those of another optimizer, and changes nothing then."""
    own, new = optimizer.param_groups, state_dict["param_groups"]
    if len(new) != len(own):
        raise UsageError(f"load_state_dict(): the state has {len(new)} parameter groups, the optimizer has {len(own)}")
    if "zero_stage" in state_dict:
        _load_part(optimizer, state_dict)
    elif state_dict.get("state"):
        _load_whole(optimizer, state_dict)
    for group, options in zip(own, new):
        group.update({key: value for key, value in options.items() if key != "params"})


def take(
    optimizer: _Optimizer,
    states_of: Mapping[torch.Tensor, Mapping[str, Any]],
    masters_of: Mapping[torch.Tensor, torch.Tensor] | None = None,
) -> None:
    """Loads states of whole parameters: {parameter: {name: tensor or number}}. Collective."""
    core, params_of = optimizer._core, optimizer._engine()._names
    names = {id(param): name for name, param in params_of.items()}
    states = {names[id(param)]: states for param, states in states_of.items() if id(param) in names}
    masters = {names[id(param)]: master for param, master in (masters_of or {}).items()}
    groups = []
    for _, params, _ in core.param_groups():
        whole = {name: _tensors(states.get(name, {}), params_of[name]) for name in params}
        for name in params:
            if name in masters:
                whole[name][""] = masters[name]
        groups.append((whole, _step_of(states, params)))
    _core.load_whole_state(core, groups)


def _write_part(optimizer: _Optimizer, engine: Owner) -> dict[str, Any]:
    parts = optimizer._owned.parts()
    groups = [dict(_options(group), params=[]) for group in optimizer.param_groups]
    state: dict[int, dict[str, Any]] = {}
    masters: list[torch.Tensor] = []
    for number, part in enumerate(parts):
        groups[optimizer._given[part.group]]["params"].append(number)
        master, states = optimizer._owned.of_part(part)
        masters.append(master)
        if states:
            state[number] = states
    stage = engine.zero_optimization_stage()
    return {
        "state": state,
        "param_groups": groups,
        "single_partition_of_fp32_groups": masters,
        **({"fp32_flat_groups": masters} if stage == 3 else {}),  # DeepSpeed's name at stage 3
        "zero_stage": stage,
        "partition_count": engine.dp_world_size,
        "rank": engine.global_rank,
    }


def _load_part(optimizer: _Optimizer, state_dict: dict[str, Any]) -> None:
    engine, core = optimizer._engine(), optimizer._core
    own = {"zero_stage": engine.zero_optimization_stage(), "partition_count": engine.dp_world_size, "rank": engine.global_rank}
    for key, value in own.items():
        if state_dict[key] != value:
            raise UsageError(
                f"load_state_dict(): the state is of {key} {state_dict[key]}, this is {value}: a state of ZeRO is for the same rank of "
                "as many at the same stage; save_checkpoint() and load_checkpoint() of the engine go on at any"
            )
    parts, masters = optimizer._owned.parts(), state_dict["single_partition_of_fp32_groups"]
    if len(parts) != len(masters):
        raise UsageError(f"load_state_dict(): the state has {len(masters)} parts, the optimizer has {len(parts)}")
    groups = []
    for group in range(len(core.param_groups())):
        mine = [number for number, part in enumerate(parts) if part.group == group]
        states = [state_dict["state"].get(number, {}) for number in mine]
        step = max((int(state["step"]) for state in states if "step" in state), default=0)
        names = {name: None for state in states for name in state if name != "step"}
        flats = {name: torch.cat([_flat(state.get(name), masters[number]) for number, state in zip(mine, states)]) for name in names}
        groups.append((torch.cat([masters[number] for number in mine]) if mine else None, flats, step))
    _core.load_owned_state(core, groups)


def _load_whole(optimizer: _Optimizer, state_dict: dict[str, Any]) -> None:
    params: dict[int, torch.Tensor] = {}  # by number in the state
    for index, (group, new) in enumerate(zip(optimizer.param_groups, state_dict["param_groups"])):
        if "params" not in new or len(new["params"]) != len(group["params"]):
            raise UsageError(
                f"load_state_dict(): group {index} of the state has {len(new.get('params', ()))} parameters, the optimizer's has "
                f"{len(group['params'])}"
            )
        params.update(zip(new["params"], group["params"]))
    masters = [master for part in state_dict.get("fp32_groups", ()) for master in part]
    trained = [param for part in optimizer._owned.params() for param in part] if masters else []
    if len(masters) != len(trained):
        raise UsageError(f"load_state_dict(): the state has {len(masters)} master weights, the optimizer has {len(trained)}")
    masters_of = dict(zip(trained, masters))
    take(optimizer, {params[number]: states for number, states in state_dict["state"].items() if number in params}, masters_of)


def _numbered(optimizer: _Optimizer) -> tuple[list[dict[str, Any]], dict[int, int]]:
    """Returns torch's groups with the parameters' numbers, and {id of a parameter: number}."""
    groups: list[dict[str, Any]] = []
    numbers: dict[int, int] = {}
    for group in optimizer.param_groups:
        first = len(numbers)
        numbers.update((id(param), first + index) for index, param in enumerate(group["params"]))
        groups.append(dict(_options(group), params=list(range(first, len(numbers)))))
    return groups, numbers


def _options(group: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key != "params"}


def _with_scalars(states: Mapping[str, Any]) -> dict[str, Any]:
    """Returns states with scalars, which the core stores once for each element, as single numbers."""
    numbers = {name[len(SCALAR) :]: value.reshape(-1)[0].clone() for name, value in states.items() if name.startswith(SCALAR)}
    return {**{name: value for name, value in states.items() if not name.startswith(SCALAR)}, **numbers}


def _tensors(states: Mapping[str, Any], param: torch.Tensor) -> dict[str, torch.Tensor]:
    """Returns one parameter's states as tensors of its size, except the step count."""
    shape = getattr(param, "ds_shape", param.shape)
    tensors = {}
    for name, value in states.items():
        if name == "step" or value is None or isinstance(value, (bool, str)):
            continue
        if isinstance(value, torch.Tensor) and (value.dim() > 0 or not shape):
            tensors[name] = value
        else:
            tensors[SCALAR + name] = torch.full(shape, float(value))
    return tensors


def _step_of(states_of: Mapping[str, Mapping[str, Any]], params: Iterable[str]) -> int:
    steps = {int(states_of[name]["step"]) for name in params if "step" in states_of.get(name, {})}
    if len(steps) > 1:
        logger.warning(
            f"parameters of one group have made {min(steps)} to {max(steps)} steps: the engine counts {max(steps)} for all of them"
        )
    if not steps and any(states_of.get(name) for name in params):
        return 1  # states without a step count, such as SGD's, have made one step
    return max(steps, default=0)


def _flat(tensor: torch.Tensor | None, master: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(master) if tensor is None else tensor.reshape(-1)
