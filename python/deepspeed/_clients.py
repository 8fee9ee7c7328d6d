"""Which client runs the training, where the habits of an older one would break it."""

from __future__ import annotations

import sys


def enters_no_sync_everywhere() -> bool:
    """Returns whether Accelerate before 1.9 runs the training.

    It enters no_sync() at all stages, and before 1.8 it steps inside of the scope.
    """
    accelerate = sys.modules.get("accelerate")
    version = getattr(accelerate, "__version__", None)
    return version is not None and _leading_numbers(version) < (1, 9)


def _leading_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])
