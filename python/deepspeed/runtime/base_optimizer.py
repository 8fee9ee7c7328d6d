"""Defines the base classes of the optimizer that initialize() returns."""

from __future__ import annotations

import contextlib
import types
import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, cast

import torch

from deepspeed.ops.lamb.trust_ratios import TrustRatios
from deepspeed.runtime.optimizer_parts import state_dicts
from deepspeed.runtime.optimizer_parts.owned_state import OwnedState, StateView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any, NoReturn

    from deepspeed import _core
    from deepspeed._slices import SliceStepper
    from deepspeed.runtime.optimizer_parts.loss_scale_view import LossScaleView
    from deepspeed.runtime.optimizer_parts.owner import Owner


class DeepSpeedOptimizer(torch.optim.Optimizer):
    """Shows the core's optimizer as an optimizer of torch.

    `param_groups` are the client's own dicts, if it passed any. The core steps. What clients and their schedules write into the dicts
    takes effect at the next step, and after it the dicts show what the core's schedule has written. A call that may change options in the
    core, such as a load, uses _showing(): before the call the core gets the dicts' values, and after it the dicts get the core's. `state`
    shows the core's states, keyed by parameter, or by flat tensor if DeepSpeed keeps flat ones.
    """

    _keeps_flat = False

    def __init__(
        self,
        groups: list[dict[str, Any]],
        client: torch.optim.Optimizer | None = None,
        make_basic: Callable[[], torch.optim.Optimizer] | None = None,
    ) -> None:
        # It does not call torch's constructor, which would import all of torch.compile. State and parameters are the core's.
        self.param_groups = groups
        self.defaults = dict(client.defaults) if client is not None else _without_params(groups[0])
        self._owned: OwnedState = None  # type: ignore[assignment]  # until _attach()
        self._whole_params: list[list[torch.Tensor]] | None = None  # the groups' parameters, while flat tensors replace them
        self.state: Any = {}
        self._client = client
        self._make_basic = make_basic
        self._basic: torch.optim.Optimizer | None = None
        self.overflow = False  # of the last update; micro steps in between do not change it
        self._optimizer_step_pre_hooks = OrderedDict()
        self._optimizer_step_post_hooks = OrderedDict()
        self._optimizer_state_dict_pre_hooks = OrderedDict()
        self._optimizer_state_dict_post_hooks = OrderedDict()
        self._optimizer_load_state_dict_pre_hooks = OrderedDict()
        self._optimizer_load_state_dict_post_hooks = OrderedDict()
        self._opt_called = True  # otherwise torch's schedules would warn at a step that comes before this object's first one
        self._engine: Callable[[], Owner] = None  # type: ignore[assignment]  # until _attach()
        self._written: list[dict[str, Any]] = []  # for each of the core's groups: what a schedule's constructor has written into its dict
        self._given: list[int] = []  # for each of the core's groups: the index of its dict
        self._seen: list[dict[str, Any]] = []  # for each of the core's groups: its options at the last comparison

    def _note_written(self, dicts: Sequence[Mapping[str, Any]], before: Sequence[Mapping[str, Any]]) -> None:
        """Keeps what a schedule's constructor has written. dicts, before: the dicts of the core's groups after and before it."""
        self._written = [
            {key: value for key, value in own.items() if key != "params" and (key not in was or _plain(was[key]) != _plain(value))}
            for own, was in zip(dicts, before)
        ]

    def _attach(self, engine: Owner) -> None:
        """Connects to the engine's core, and takes over its options.

        They are newer than the dicts, since the core's own schedule has written the first rate. Only what a client schedule's constructor
        has written into the dicts is passed to the core.
        """
        self._engine = cast("Callable[[], Owner]", weakref.ref(engine))
        for index, written in enumerate(self._written):
            for key, value in written.items():
                self._core.set_group_option(index, key, value)
        groups = self._core.param_groups()
        given = [index for _, _, index in groups]
        self._given = given if len(set(given)) == len(given) else list(range(len(groups)))
        self._seen = [{} for _ in groups]
        self._pull()
        counts_in_tensors = type(self._client).__module__.startswith("torch.optim")
        self._owned = OwnedState(lambda: self._core, engine._names, counts_in_tensors)
        # A client whose step runs in Python keeps its states itself, keyed by the slices' stand-ins.
        described = engine._plan.slice_optimizer
        self._slice_stepper: SliceStepper | None = described["stepper"] if described is not None else None
        self.state = StateView(self._read_states, self._owned.states_of)
        if self._client is not None:
            if self._slice_stepper is not None:
                self.state = self._client.state
            self._show_states_in(self._client)
        elif self._basic is not None:  # a schedule's constructor has requested it
            self._basic.state = self.state
        if engine._plan.states:
            state_dicts.take(self, engine._plan.states)
            engine._plan.states = {}

    @property
    def _core(self) -> _core.TrainingEngine:
        return self._engine()._core

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The optimizer below. It is the client's, or one of the class that DeepSpeed would make, or this one if there is none."""
        if self._make_basic is None:
            return self
        if self._basic is None:
            self._basic = self._make_basic()
            if self._client is None:
                # The core steps, whoever calls this. A torch schedule needs a method of the optimizer itself.
                step = types.MethodType(lambda _, closure=None: self.step(closure), self._basic)
                self._basic.step = step  # type: ignore[method-assign]
                self._show_states_in(self._basic)
        return self._basic

    @property
    def _for_schedules(self) -> torch.optim.Optimizer:
        """The optimizer that schedules hold. It is the one below, or this one if it replaces it, as without ZeRO and 16 bits."""
        below = self.optimizer
        return self if isinstance(self, type(below)) else below

    def _read_states(self) -> list[tuple[torch.Tensor, dict[str, Any]]]:
        if self._engine is None or self._engine() is None or self._core is None:
            return []
        return self._owned.states_of_parts() if self._keeps_flat else self._owned.states_of_params()

    def _show_states_in(self, basic: torch.optim.Optimizer) -> None:
        """Shows the states in the optimizer below. While that one writes its state_dict, its groups hold the keys of the states."""
        basic.state = self.state
        if isinstance(basic, TrustRatios):
            engine = self._engine
            basic._find_core = lambda: getattr(engine(), "_core", None)
        basic._optimizer_state_dict_pre_hooks[id(self)] = lambda _: self._set_fp32_optimizer_param_groups()
        basic._optimizer_state_dict_post_hooks[id(self)] = lambda *_: self._clear_fp32_optimizer_param_groups()

    def _state_keys(self) -> list[list[torch.Tensor]]:
        """Returns the keys of `state` for each of the core's groups."""
        keys: list[list[torch.Tensor]] = [[] for _ in self._given]
        if self._slice_stepper is not None:
            for group, stand_ins in self._slice_stepper.stand_ins():
                keys[group].extend(stand_ins)
        else:
            for part, params, master in zip(self._owned.parts(), self._owned.params(), self._owned.masters()):
                keys[part.group].extend([master] if self._keeps_flat else params)
        return keys

    def _set_fp32_optimizer_param_groups(self) -> None:
        """Puts the keys of `state` into the groups until _clear_fp32_optimizer_param_groups() restores the parameters."""
        if self._whole_params is None:
            self._whole_params = [group["params"] for group in self.param_groups]
            for given, keys in zip(self._given, self._state_keys()):
                self.param_groups[given]["params"] = keys

    def _clear_fp32_optimizer_param_groups(self) -> None:
        if self._whole_params is not None:
            for group, params in zip(self.param_groups, self._whole_params):
                group["params"] = params
            self._whole_params = None

    def _push(self) -> None:
        """Passes changed options from the dicts to the core."""
        for index, (given, seen) in enumerate(zip(self._given, self._seen)):
            group = self.param_groups[given]
            for key, value in seen.items():
                if key in group and _plain(group[key]) != value:
                    if self._core.set_group_option(index, key, group[key]):
                        seen[key] = _plain(group[key])

    def _pull(self, everything: bool = False) -> None:
        """Writes options that the core has changed into the dicts. everything: overwrites what others have written there."""
        for (options, _, _), given, seen in zip(self._core.param_groups(), self._given, self._seen):
            for key, value in options.items():
                if everything or key not in seen or seen[key] != value:
                    seen[key] = value
                    _write(self.param_groups[given], key, value)

    @contextlib.contextmanager
    def _showing(self) -> Iterator[None]:
        """Surrounds a call that may change options in the core. Afterwards the dicts show the core's options, whatever they held before."""
        self._push()
        yield
        self._pull(everything=True)

    def _note_step(self) -> None:
        """Tells torch's schedules that the optimizer below was stepped. They warn if they are stepped first."""
        if self._client is not None:
            self._client._opt_called = True  # type: ignore[attr-defined]  # of torch's schedules
        if self._basic is not None:
            self._basic._opt_called = True  # type: ignore[attr-defined]

    def step(self, closure: Any = None) -> Any:
        return self._engine().step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        self._engine().zero_grad()

    def add_param_group(self, param_group: dict[str, Any]) -> NoReturn:
        from deepspeed._errors import NotSupportedError

        raise NotSupportedError(
            "add_param_group() is not supported: the engine's memory is laid out for the parameters that initialize() was "
            "given; pass all groups there, with requires_grad as it is to be"
        )

    @property
    def cur_scale(self) -> float:
        return self._core.loss_scale()

    @property
    def loss_scale(self) -> float:
        return self._core.loss_scale()

    @property
    def loss_scaler(self) -> LossScaleView:
        from deepspeed.runtime.optimizer_parts.loss_scale_view import LossScaleView

        return LossScaleView(self._engine())

    loss_scale_config = loss_scaler

    @property
    def dynamic_loss_scale(self) -> bool:
        return self._engine().dynamic_loss_scale()

    def state_dict(self) -> dict[str, Any]:
        """Returns options and states: as torch's optimizers at stage 0, otherwise this rank's part.

        That part is flat and has the masters. A checkpoint of the engine, save_checkpoint(), can be resumed at other stages and world
        sizes.
        """
        return state_dicts.write(self)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads what state_dict() returned, or the whole states of an optimizer of torch. Collective."""
        state_dicts.load(self, state_dict)

    def __eq__(self, other: object) -> bool:
        """Equals the optimizer below it, which DeepSpeed returns without ZeRO and 16 bits."""
        if other is self or (self._client is not None and other is self._client):
            return True
        return NotImplemented  # the other object may know, as unittest.mock.ANY does

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.param_groups!r})"


class ZeROOptimizer(DeepSpeedOptimizer):
    """Shows the core's optimizer at the ZeRO stages 1 to 3."""

    _keeps_flat = True

    @property
    def _global_grad_norm(self) -> float:
        """The norm of the last update's gradients before clipping; 0 before the first one."""
        return self._core.get_global_grad_norm() or 0.0

    def needs_scaler(self) -> bool:
        """Returns whether a loss needs engine.scale() before a script's own backward, as in fp16."""
        return self._engine().fp16_enabled() or self._autocasts_to_fp16()

    def _autocasts_to_fp16(self) -> bool:
        engine = self._engine()
        return engine.torch_autocast_enabled() and self._core.torch_autocast_dtype() == torch.float16

    @property
    def averaged_gradients(self) -> dict[int, list[torch.Tensor]]:
        """The reduced gradients that this rank owns: {group: flat tensors of its parameters}. At stage 3 the keys are sub-groups."""
        return self._owned.gradients()


def _without_params(group: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key != "params"}


def _plain(value: object) -> Any:
    if isinstance(value, torch.Tensor):
        return value.item()
    return tuple(value) if isinstance(value, list) else value


def _write(group: dict[str, Any], key: str, value: Any) -> None:
    held = group.get(key)
    if isinstance(held, torch.Tensor):  # a capturable optimizer's rate: the dict keeps its tensor
        held.fill_(value)
    elif key not in group or _plain(held) != value:  # an unchanged number stays an int
        group[key] = list(value) if isinstance(held, list) else value
