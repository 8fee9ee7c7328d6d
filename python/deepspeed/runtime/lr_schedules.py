"""Provides the config's learning rate schedules, which the core computes."""

from __future__ import annotations

import argparse
import weakref
from typing import TYPE_CHECKING, cast

import torch

from deepspeed import _core
from deepspeed._errors import ConfigError
from deepspeed.utils.logging import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from typing import Any

    from deepspeed._types import HasGroups
    from deepspeed.runtime.base_optimizer import DeepSpeedOptimizer
    from deepspeed.runtime.optimizer_parts.owner import Owner

LR_SCHEDULE = "lr_schedule"
LR_RANGE_TEST = "LRRangeTest"
ONE_CYCLE = "OneCycle"
WARMUP_LR = "WarmupLR"
WARMUP_DECAY_LR = "WarmupDecayLR"
WARMUP_COSINE_LR = "WarmupCosineLR"
VALID_LR_SCHEDULES = [LR_RANGE_TEST, ONE_CYCLE, WARMUP_LR, WARMUP_DECAY_LR, WARMUP_COSINE_LR]

LR_RANGE_TEST_MIN_LR = "lr_range_test_min_lr"
LR_RANGE_TEST_STEP_RATE = "lr_range_test_step_rate"
LR_RANGE_TEST_STEP_SIZE = "lr_range_test_step_size"
LR_RANGE_TEST_STAIRCASE = "lr_range_test_staircase"

EDGE_VALUE = "edge_value"
MID_VALUE = "mid_value"
CYCLE_FIRST_STEP_SIZE = "cycle_first_step_size"
CYCLE_FIRST_STAIR_COUNT = "cycle_first_stair_count"
CYCLE_SECOND_STEP_SIZE = "cycle_second_step_size"
CYCLE_SECOND_STAIR_COUNT = "cycle_second_stair_count"
DECAY_STEP_SIZE = "decay_step_size"
CYCLE_MIN_LR = "cycle_min_lr"
CYCLE_MAX_LR = "cycle_max_lr"
DECAY_LR_RATE = "decay_lr_rate"
CYCLE_MIN_MOM = "cycle_min_mom"
CYCLE_MAX_MOM = "cycle_max_mom"
DECAY_MOM_RATE = "decay_mom_rate"

WARMUP_MIN_LR = "warmup_min_lr"
WARMUP_MAX_LR = "warmup_max_lr"
WARMUP_NUM_STEPS = "warmup_num_steps"
WARMUP_TYPE = "warmup_type"
WARMUP_LOG_RATE = "log"
WARMUP_LINEAR_RATE = "linear"
WARMUP_MIN_RATIO = "warmup_min_ratio"
COS_MIN_RATIO = "cos_min_ratio"
TOTAL_NUM_STEPS = "total_num_steps"


class EngineSchedule:
    """Shows an engine's schedule, which the engine steps, or steps a script's own optimizer."""

    _type: str  # the config's name

    def __init__(self, optimizer: HasGroups, last_batch_iteration: int = -1, **params: Any) -> None:
        self._written = optimizer
        if not params.get(WARMUP_NUM_STEPS, 1):
            raise ConfigError(f"{self._type}: warmup_num_steps is {params[WARMUP_NUM_STEPS]}, expected a whole number of at least 1")
        self._params = params = _with_known_warmup(params)
        groups = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
        self._source: _core.Schedule | _ScheduleOfEngine = _core.Schedule(self._type, params, groups)
        if last_batch_iteration != -1:
            self._source.step(last_batch_iteration)
        self._write()

    @classmethod
    def of_engine(cls, engine: Owner, optimizer: DeepSpeedOptimizer) -> EngineSchedule:
        """Returns the schedule that the core has made for an engine with this optimizer."""
        kinds = {made._type: made for made in (WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle, LRRangeTest)}
        name = engine.scheduler_name()
        assert name is not None
        kind = kinds[name]
        made = kind.__new__(kind)
        made._written = optimizer
        made._params = dict(engine.scheduler_params() or {})
        made._source = _ScheduleOfEngine(engine, optimizer)
        return made

    def _leave_engine(self) -> None:
        """Detaches from the engine, and goes on alone from the current step. Another schedule takes its place there."""
        if isinstance(self._source, _ScheduleOfEngine):
            state = self._source.state_dict()
            groups = [{key: value for key, value in group.items() if key != "params"} for group in self._written.param_groups]
            self._source = _core.Schedule(self._type, _with_known_warmup(self._params), groups)
            self._source.load_state_dict(state)

    @property
    def optimizer(self) -> Any:
        """Returns the torch optimizer whose rates are written. For an engine it is the one below the wrapper of its stage."""
        from deepspeed.runtime.base_optimizer import DeepSpeedOptimizer

        if isinstance(self._written, DeepSpeedOptimizer):
            return self._written._for_schedules
        if isinstance(self._written, torch.optim.Optimizer):
            return self._written
        return getattr(self._written, "optimizer", self._written)

    @property
    def last_batch_iteration(self) -> int:
        iteration: int = self._source.state_dict()["last_batch_iteration"]
        return iteration

    def step(self, last_batch_iteration: int | None = None) -> None:
        self._source.step(last_batch_iteration)
        self._write()

    def get_lr(self) -> list[float]:
        return self._source.get_lr()

    def get_last_lr(self) -> list[float]:
        """Returns the last written rates, one for each group. Raises AssertionError before the first step."""
        rates = self._source.get_last_lr()
        assert rates, "need to call step() first"
        return rates

    def state_dict(self) -> dict[str, Any]:
        return self._source.state_dict()

    def load_state_dict(self, sd: dict[str, Any]) -> None:
        self._source.load_state_dict(sd)
        self._write()

    def _write(self) -> None:
        held = [group.get("lr") for group in self._written.param_groups]
        self._source.write(self._written)
        for group, rate in zip(self._written.param_groups, held):
            if isinstance(rate, torch.Tensor) and group["lr"] is not rate:  # a capturable optimizer keeps its tensor
                group["lr"] = rate.fill_(group["lr"])

    def __getattr__(self, name: str) -> Any:
        """Returns the schedule's internal values, and the parameters that it was made with."""
        if name.startswith("_"):  # the object is still being made
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        shown = {**self._params, **self._source.attributes()}
        if name not in shown:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return shown[name]


def _with_known_warmup(params: dict[str, Any]) -> dict[str, Any]:
    if params.get(WARMUP_TYPE, WARMUP_LOG_RATE) in (WARMUP_LOG_RATE, WARMUP_LINEAR_RATE):
        return params
    logger.warning(f"warmup_type {params[WARMUP_TYPE]!r} is neither log nor linear: the warm-up is logarithmic")
    return {**params, WARMUP_TYPE: WARMUP_LOG_RATE}


class _ScheduleOfEngine:
    def __init__(self, engine: Owner, optimizer: DeepSpeedOptimizer) -> None:
        self._engine = cast("Callable[[], Owner]", weakref.ref(engine))
        self._optimizer = optimizer

    @property
    def _core(self) -> _core.TrainingEngine:
        return self._engine()._core

    def step(self, last_batch_iteration: int | None) -> None:
        with self._showing():
            self._core.scheduler_step(last_batch_iteration)

    def get_lr(self) -> list[float]:
        return self._core.scheduler_lr()

    def get_last_lr(self) -> list[float]:
        return self._core.scheduler_last_lr()

    def attributes(self) -> dict[str, Any]:
        return self._core.scheduler_attributes()

    def state_dict(self) -> dict[str, Any]:
        return self._core.scheduler_state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        with self._showing():
            self._core.load_scheduler_state(state)

    def write(self, optimizer: Any) -> None:
        """Changes nothing: the engine's groups already show the rates."""

    def _showing(self) -> AbstractContextManager[None]:
        return self._optimizer._showing()


class WarmupLR(EngineSchedule):
    """Raises the rate from `warmup_min_lr` to `warmup_max_lr` in `warmup_num_steps` steps, then keeps it.

    warmup_max_lr: None means each group's own rate.
    """

    _type = WARMUP_LR

    def __init__(
        self,
        optimizer: HasGroups,
        warmup_min_lr: float | Sequence[float] = 0.0,
        warmup_max_lr: float | Sequence[float] | None = None,
        warmup_num_steps: int = 1000,
        warmup_type: str = WARMUP_LOG_RATE,
        last_batch_iteration: int = -1,
    ) -> None:
        super().__init__(
            optimizer,
            last_batch_iteration,
            warmup_min_lr=warmup_min_lr,
            warmup_max_lr=warmup_max_lr,
            warmup_num_steps=warmup_num_steps,
            warmup_type=warmup_type,
        )


class WarmupDecayLR(EngineSchedule):
    """Raises the rate as WarmupLR does, then lowers it linearly to 0 at `total_num_steps`."""

    _type = WARMUP_DECAY_LR

    def __init__(
        self,
        optimizer: HasGroups,
        total_num_steps: int,
        warmup_min_lr: float | Sequence[float] = 0.0,
        warmup_max_lr: float | Sequence[float] = 0.001,
        warmup_num_steps: int = 1000,
        warmup_type: str = WARMUP_LOG_RATE,
        last_batch_iteration: int = -1,
    ) -> None:
        super().__init__(
            optimizer,
            last_batch_iteration,
            total_num_steps=total_num_steps,
            warmup_min_lr=warmup_min_lr,
            warmup_max_lr=warmup_max_lr,
            warmup_num_steps=warmup_num_steps,
            warmup_type=warmup_type,
        )


class WarmupCosineLR(EngineSchedule):
    """Raises the rate to the optimizer's own, then lowers it to `cos_min_ratio` by a cosine."""

    _type = WARMUP_COSINE_LR

    def __init__(
        self,
        optimizer: HasGroups,
        total_num_steps: int,
        warmup_min_ratio: float = 0.0,
        warmup_num_steps: int = 1000,
        cos_min_ratio: float = 0.0001,
        warmup_type: str = WARMUP_LOG_RATE,
        last_batch_iteration: int = -1,
    ) -> None:
        super().__init__(
            optimizer,
            last_batch_iteration,
            total_num_steps=total_num_steps,
            warmup_min_ratio=warmup_min_ratio,
            warmup_num_steps=warmup_num_steps,
            cos_min_ratio=cos_min_ratio,
            warmup_type=warmup_type,
        )

    def get_lr_ratio(self) -> float:
        """Returns the factor of the groups' own rates at this step."""
        ratio: float = self._source.attributes()["lr_ratio"]
        return ratio


class OneCycle(EngineSchedule):
    """Follows the 1-cycle policy for rates and momenta (Smith, arXiv:1803.09820)."""

    _type = ONE_CYCLE

    def __init__(
        self,
        optimizer: HasGroups,
        cycle_min_lr: float | Sequence[float],
        cycle_max_lr: float | Sequence[float],
        decay_lr_rate: float = 0.0,
        cycle_first_step_size: int = 2000,
        cycle_second_step_size: int | None = None,
        cycle_first_stair_count: int = 0,
        cycle_second_stair_count: int | None = None,
        decay_step_size: int = 0,
        cycle_momentum: bool = True,
        cycle_min_mom: float = 0.8,
        cycle_max_mom: float = 0.9,
        decay_mom_rate: float = 0.0,
        last_batch_iteration: int = -1,
    ) -> None:
        params = dict(
            cycle_min_lr=cycle_min_lr,
            cycle_max_lr=cycle_max_lr,
            decay_lr_rate=decay_lr_rate,
            cycle_first_step_size=cycle_first_step_size,
            cycle_second_step_size=cycle_second_step_size,
            cycle_first_stair_count=cycle_first_stair_count,
            cycle_second_stair_count=cycle_second_stair_count,
            decay_step_size=decay_step_size,
            cycle_momentum=cycle_momentum,
            cycle_min_mom=cycle_min_mom,
            cycle_max_mom=cycle_max_mom,
            decay_mom_rate=decay_mom_rate,
        )
        params = {key: value for key, value in params.items() if value is not None}
        super().__init__(optimizer, last_batch_iteration, **params)

    def get_mom(self) -> list[tuple[float, float]] | None:
        """Returns each group's betas at this step; None if the schedule does not change them."""
        moms = self._source.attributes().get("moms")
        return None if moms is None else [tuple(betas) for betas in moms]


class LRRangeTest(EngineSchedule):
    """Raises the rate step by step, to find the largest one that trains (Smith, arXiv:1506.01186)."""

    _type = LR_RANGE_TEST

    def __init__(
        self,
        optimizer: HasGroups,
        lr_range_test_min_lr: float | Sequence[float] = 1e-3,
        lr_range_test_step_size: int = 2000,
        lr_range_test_step_rate: float = 1.0,
        lr_range_test_staircase: bool = False,
        last_batch_iteration: int = -1,
    ) -> None:
        super().__init__(
            optimizer,
            last_batch_iteration,
            lr_range_test_min_lr=lr_range_test_min_lr,
            lr_range_test_step_size=lr_range_test_step_size,
            lr_range_test_step_rate=lr_range_test_step_rate,
            lr_range_test_staircase=lr_range_test_staircase,
        )


def add_tuning_arguments(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Adds the schedules' parameters to an argument parser."""
    group = parser.add_argument_group("Convergence Tuning", "Convergence tuning configurations")
    group.add_argument("--lr_schedule", type=str, default=None, help="LR schedule for training.")
    for name, default in (
        (LR_RANGE_TEST_MIN_LR, 0.001),
        (LR_RANGE_TEST_STEP_RATE, 1.0),
        (CYCLE_MIN_LR, 0.01),
        (CYCLE_MAX_LR, 0.1),
        (DECAY_LR_RATE, 0.0),
        (CYCLE_MIN_MOM, 0.8),
        (CYCLE_MAX_MOM, 0.9),
        (DECAY_MOM_RATE, 0.0),
        (WARMUP_MIN_LR, 0),
        (WARMUP_MAX_LR, 0.001),
    ):
        group.add_argument(f"--{name}", type=float, default=default)
    for name, default in (
        (LR_RANGE_TEST_STEP_SIZE, 1000),
        (CYCLE_FIRST_STEP_SIZE, 1000),
        (CYCLE_FIRST_STAIR_COUNT, -1),
        (CYCLE_SECOND_STEP_SIZE, -1),
        (CYCLE_SECOND_STAIR_COUNT, -1),
        (DECAY_STEP_SIZE, 1000),
        (WARMUP_NUM_STEPS, 1000),
    ):
        group.add_argument(f"--{name}", type=int, default=default)
    group.add_argument(f"--{LR_RANGE_TEST_STAIRCASE}", type=bool, default=False)
    group.add_argument("--cycle_momentum", default=False, action="store_true")
    group.add_argument(f"--{WARMUP_TYPE}", type=str, default=WARMUP_LOG_RATE)
    return parser


def parse_arguments() -> tuple[argparse.Namespace, list[str]]:
    """Parses the schedules' parameters on the command line. Returns (known, unknown) arguments."""
    return add_tuning_arguments(argparse.ArgumentParser()).parse_known_args()
