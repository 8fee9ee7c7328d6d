"""Defines what a file says about one object."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Any


class Parts(NamedTuple):
    """Holds what a file says about an object, other than its callable."""

    arguments: tuple[Any, ...] = ()
    keywords: dict[Any, Any] = {}
    state: Any = None
    items: list[Any] = []  # are appended
    pairs: list[tuple[Any, Any]] = []  # are set
