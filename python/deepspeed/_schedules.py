"""Lets the core step a schedule that the client brings."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from deepspeed._types import Schedule


class ClientSchedule:
    """Steps the client's schedule for the core, which reads the rates from the optimizer's dicts."""

    def __init__(self, schedule: Schedule, dicts: list[dict[str, Any]]) -> None:
        self._schedule = schedule
        self._dicts = dicts  # one for each of the core's groups
        self.arguments: dict[str, Any] = {}  # for the schedule's next step(), from engine.step(): the metrics of ReduceLROnPlateau

    def step(self) -> None:
        self._schedule.step(**self.arguments)

    def rates(self) -> list[float]:
        return [float(group["lr"]) for group in self._dicts]

    def state_dict(self) -> Any:
        return _plain(self._schedule.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._schedule.load_state_dict(_like(state, self._schedule.state_dict()))


def _plain(value: object) -> Any:
    """Leaves out what JSON cannot hold: callables, which torch's schedules do not save either."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if not callable(item)}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _like(value: Any, example: Any) -> Any:
    """Restores types and keys of containers that were stored as JSON. example: the containers that the schedule has."""
    if isinstance(example, dict) and isinstance(value, dict):
        keys = {str(key): key for key in example}
        items: dict[Any, Any] = {keys.get(key, key): item for key, item in value.items()}
        if any(isinstance(key, int) for key in example):
            items = {int(key): item for key, item in items.items()}
        items = {key: _like(item, example.get(key)) for key, item in items.items()}
        return items if type(example) is dict else type(example)(items)
    if isinstance(example, (list, tuple)) and isinstance(value, list):
        examples = list(example) + [None] * max(0, len(value) - len(example))
        return type(example)(_like(item, kind) for item, kind in zip(value, examples))
    return value
