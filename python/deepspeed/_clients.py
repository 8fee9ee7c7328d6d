"""Finds out which client runs the training, for older clients that need special treatment."""

from __future__ import annotations

import sys


def enters_no_sync_everywhere() -> bool:
    """Returns whether Accelerate older than 1.9 runs the training.

    It enters no_sync() at all stages, and before 1.8 it calls step() inside the scope.
    """
    accelerate = sys.modules.get("accelerate")
    version = getattr(accelerate, "__version__", None)
    return version is not None and _leading_numbers(version) < (1, 9)


def _leading_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])
