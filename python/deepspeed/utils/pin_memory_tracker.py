"""Counts the bytes that are pinned, and logs when they pass 32 GB, 64 GB, 128 GB and so on."""
from deepspeed.utils.logging import logger

_GB = 1024**3
_CHECKPOINT_BASE_GB = 32


def _fmt_bytes(num_bytes):
    for unit, size in (("GB", 1024**3), ("MB", 1024**2), ("KB", 1024)):
        if num_bytes >= size:
            return f"{num_bytes / size:.2f} {unit}"
    return f"{num_bytes} B"


class _PinnedMemoryTracker:
    def __init__(self):
        self.reset()

    def reset(self):
        self.total_bytes = 0
        self.count = 0
        self.next_checkpoint_gb = _CHECKPOINT_BASE_GB

    def track(self, num_bytes):
        self.total_bytes += int(num_bytes)
        self.count += 1
        if self.total_bytes >= self.next_checkpoint_gb * _GB:
            self.log_summary(tag=f"checkpoint {self.next_checkpoint_gb} GB")
            while self.total_bytes >= self.next_checkpoint_gb * _GB:
                self.next_checkpoint_gb *= 2

    def log_summary(self, tag=""):
        mark = f" [{tag}]" if tag else ""
        logger.info(f"Pinned host memory{mark}: {_fmt_bytes(self.total_bytes)} in {self.count} allocations")


_tracker = _PinnedMemoryTracker()


def track_pinned_memory(num_bytes):
    """Counts an allocation."""
    _tracker.track(num_bytes)


def pinned_memory_summary(tag=""):
    """Logs the total."""
    _tracker.log_summary(tag)
