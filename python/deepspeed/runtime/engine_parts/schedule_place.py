"""The place of an engine's schedule: the core steps what stands there, with the updates that were not skipped."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from deepspeed._errors import UsageError
from deepspeed._schedules import ClientSchedule
from deepspeed.runtime.engine_parts.param_groups import EngineParamGroups
from deepspeed.runtime.lr_schedules import EngineSchedule

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from deepspeed._types import RateSchedule, Schedule
    from deepspeed.runtime.engine import DeepSpeedEngine


class SchedulePlace(EngineParamGroups):
    """Holds the engine's schedule."""

    @property
    def lr_scheduler(self) -> RateSchedule | None:
        schedule: RateSchedule | None = self.__dict__.get("_lr_scheduler")
        return schedule

    @lr_scheduler.setter
    def lr_scheduler(self, schedule: Schedule | None) -> None:
        """Puts a schedule in the place of the one before, which is not stepped any more; None: there is none from now on."""
        before, core = self.lr_scheduler, self.__dict__.get("_core")
        if core is not None and core.has_optimizer() and schedule is not before:
            missing = [name for name in ("step", "state_dict", "load_state_dict") if not hasattr(schedule, name)]
            if schedule is not None and missing:
                kind = type(schedule).__name__
                raise UsageError(
                    f"engine.lr_scheduler: a {kind} has no {missing[0]}(), expected an object with step(), state_dict() and "
                    "load_state_dict(), or None"
                )
            if isinstance(before, EngineSchedule):
                before._leave_engine()
            self.__dict__["_stepped_schedule"] = None
            core.set_scheduler(None if schedule is None else self._schedule_maker(schedule))
        self.__dict__["_lr_scheduler"] = schedule

    def _show_own_schedule(self) -> None:
        """Shows the schedule of the config, which the core has made."""
        if self.lr_scheduler is None and self._core.has_scheduler():
            self.__dict__["_lr_scheduler"] = EngineSchedule.of_engine(cast("DeepSpeedEngine", self))

    def _schedule_maker(self, schedule: Any) -> Callable[[Any], ClientSchedule] | None:
        """Returns the function by which the core gets a schedule of the script's; None where there is none."""
        if schedule is None:
            return None

        def make(options_and_names: Sequence[tuple[dict[str, Any], Sequence[str]]]) -> ClientSchedule:
            dicts = [self._dict_with(names[0]) for _, names in options_and_names]
            groups = [(options, names, self._index_of(own)) for (options, names), own in zip(options_and_names, dicts)]
            facade = self._facade_of(groups)
            made = schedule
            if callable(schedule):
                before = [dict(own) for own in dicts]
                made = schedule(self._plan.client if self._plan.client is not None else facade)
                facade._note_written(dicts, before)
            self.__dict__["_lr_scheduler"] = made
            self.__dict__["_stepped_schedule"] = ClientSchedule(made, [self._dict_with(names[0]) for _, names in options_and_names])
            return self._stepped_schedule

        return make

    def _iteration_of(self, arguments: dict[str, Any] | None) -> int | None:
        """Takes step()'s arguments for the schedule. Returns the iteration that the core's own is to go to, None for the next one."""
        arguments = arguments or {}
        if self.__dict__.get("_stepped_schedule") is not None:
            self._stepped_schedule.arguments = arguments
            return None
        return arguments.get("last_batch_iteration", arguments.get("epoch"))
