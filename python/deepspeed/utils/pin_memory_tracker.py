"""Counts pinned bytes, and logs when they pass 32 GB, 64 GB, 128 GB and so on."""

from __future__ import annotations

from deepspeed.utils.logging import logger

_GB = 1024**3
_CHECKPOINT_BASE_GB = 32


def _fmt_bytes(num_bytes: int) -> str:
    for unit, size, digits in (("GB", 1024**3, 3), ("MB", 1024**2, 2), ("KB", 1024, 1)):
        if num_bytes >= size:
            return f"{num_bytes / size:.{digits}f} {unit}"
    return f"{num_bytes} B"


class _PinnedMemoryTracker:
    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._bytes = 0
        self._calls = 0
        self._next_checkpoint = _CHECKPOINT_BASE_GB * _GB

    def track(self, num_bytes: int) -> None:
        self._bytes += int(num_bytes)
        self._calls += 1
        while self._bytes >= self._next_checkpoint:
            self.log_summary(tag=f"checkpoint {_fmt_bytes(self._next_checkpoint)}")
            self._next_checkpoint *= 2

    def log_summary(self, tag: str = "") -> None:
        mark = f" [{tag}]" if tag else ""
        logger.info(f"Pinned host memory{mark}: {_fmt_bytes(self._bytes)} in {self._calls} allocations")


_tracker = _PinnedMemoryTracker()


def track_pinned_memory(num_bytes: int) -> None:
    """Counts an allocation."""
    _tracker.track(num_bytes)


def pinned_memory_summary(tag: str = "") -> None:
    """Logs the total."""
    _tracker.log_summary(tag)
