"""Holds an engine's schedule, which the core steps after each update that was not skipped."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from deepspeed._errors import UsageError
from deepspeed._schedules import ClientSchedule
from deepspeed.runtime.lr_schedules import EngineSchedule

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from deepspeed._core import TrainingEngine
    from deepspeed._types import RateSchedule, Schedule
    from deepspeed.runtime.base_optimizer import DeepSpeedOptimizer
    from deepspeed.runtime.engine_parts.param_groups import ParamGroups
    from deepspeed.runtime.optimizer_parts.owner import Owner


class SchedulePlace:
    """Holds the engine's schedule that clients see, and lets the core step it."""

    def __init__(self, groups: ParamGroups) -> None:
        self._groups = groups
        self.shown: RateSchedule | None = None
        self._stepped: ClientSchedule | None = None  # None if the core steps its own

    def put(self, schedule: Schedule | None, core: TrainingEngine) -> None:
        """Replaces the schedule by another, or by none (None). Raises UsageError, naming the method that the object lacks."""
        if core.has_optimizer() and schedule is not self.shown:
            missing = [name for name in ("step", "state_dict", "load_state_dict") if not hasattr(schedule, name)]
            if schedule is not None and missing:
                kind = type(schedule).__name__
                raise UsageError(
                    f"engine.lr_scheduler: a {kind} has no {missing[0]}(), expected an object with step(), state_dict() and "
                    "load_state_dict(), or None"
                )
            if isinstance(self.shown, EngineSchedule):
                self.shown._leave_engine()
            self._stepped = None
            core.set_scheduler(None if schedule is None else self.maker(schedule))
        self.shown = cast("RateSchedule | None", schedule)

    def show_own(self, engine: Owner, optimizer: DeepSpeedOptimizer | None) -> None:
        """Shows the config's schedule, which the core has made."""
        if self.shown is None and optimizer is not None and engine._core.has_scheduler():
            self.shown = EngineSchedule.of_engine(engine, optimizer)

    def maker(self, schedule: Any) -> Callable[[Any], ClientSchedule] | None:
        """Returns the function by which the core gets a script's schedule; None without one."""
        if schedule is None:
            return None

        def make(options_and_names: Sequence[tuple[dict[str, Any], Sequence[str]]]) -> ClientSchedule:
            groups = self._groups
            dicts = [groups.dict_with(names[0]) for _, names in options_and_names]
            facade = groups.facade_of([(options, names, groups.index_of(own)) for (options, names), own in zip(options_and_names, dicts)])
            made = schedule
            if callable(schedule):
                below = groups.client if groups.client is not None else facade._for_schedules
                before = [dict(own) for own in dicts]
                made = schedule(below)
                facade._note_written(dicts, before)
            self.shown = made
            self._stepped = ClientSchedule(made, [groups.dict_with(names[0]) for _, names in options_and_names])
            return self._stepped

        return make

    def iteration_of(self, arguments: dict[str, Any] | None) -> int | None:
        """Takes step()'s arguments for the schedule.

        Returns the iteration that the core's own schedule must go to; None for the next one.
        """
        arguments = arguments or {}
        if self._stepped is not None:
            self._stepped.arguments = arguments
            return None
        return arguments.get("last_batch_iteration", arguments.get("epoch"))
