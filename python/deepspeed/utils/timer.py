"""Times parts of a program by name, and its throughput."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from deepspeed.accelerator import get_accelerator
from deepspeed.utils.logging import logger, print_dist

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

FORWARD_MICRO_TIMER = "fwd_microstep"
FORWARD_GLOBAL_TIMER = "fwd"
BACKWARD_MICRO_TIMER = "bwd_microstep"
BACKWARD_GLOBAL_TIMER = "bwd"
BACKWARD_INNER_MICRO_TIMER = "bwd_inner_microstep"
BACKWARD_INNER_GLOBAL_TIMER = "bwd_inner"
BACKWARD_REDUCE_MICRO_TIMER = "bwd_allreduce_microstep"
BACKWARD_REDUCE_GLOBAL_TIMER = "bwd_allreduce"
STEP_MICRO_TIMER = "step_microstep"
STEP_GLOBAL_TIMER = "step"
TIME_EPSILON = 1e-6

_GB = 1024**3


def trim_mean(data: Sequence[float], trim_percent: float) -> float:
    """Returns the mean without this share of the smallest and of the largest values. The list is not changed."""
    assert 0.0 <= trim_percent <= 1.0
    if not data:
        return 0
    cut = round(len(data) * trim_percent)
    kept = sorted(data)[cut : len(data) - cut]
    return sum(kept) / len(kept) if kept else float("nan")


class SynchronizedWallClockTimer:
    """Holds named timers. A timer waits for the device's work before it reads the clock."""

    class Timer:
        """Adds up the times between start() and stop(), in milliseconds."""

        def __init__(self, name: str) -> None:
            self.name_ = name
            self.started_ = False
            self.elapsed_records: list[float] = []
            self._begin = 0.0

        def start(self) -> None:
            assert not self.started_, f"{self.name_} timer has already been started"
            get_accelerator().synchronize()
            self._begin = time.perf_counter()
            self.started_ = True

        def stop(self, reset: bool = False, record: bool = False) -> None:
            assert self.started_, f"{self.name_} timer is not started"
            get_accelerator().synchronize()
            if reset:
                self.elapsed_records.clear()
            self.elapsed_records.append((time.perf_counter() - self._begin) * 1e3)
            self.started_ = False

        def reset(self) -> None:
            self.started_ = False
            self.elapsed_records.clear()

        def elapsed(self, reset: bool = True) -> float:
            """Returns the sum. A running timer continues."""
            is_running = self.started_
            if is_running:
                self.stop()
            total = sum(self.elapsed_records)
            if reset:
                self.reset()
            if is_running:
                self.start()
            return total

        def mean(self) -> float:
            return trim_mean(self.elapsed_records, 0.1)

    def __init__(self) -> None:
        self.timers: dict[str, SynchronizedWallClockTimer.Timer] = {}

    def get_timers(self) -> dict[str, SynchronizedWallClockTimer.Timer]:
        return self.timers

    def __call__(self, name: str) -> SynchronizedWallClockTimer.Timer:
        if name not in self.timers:
            self.timers[name] = self.Timer(name)
        return self.timers[name]

    @staticmethod
    def memory_usage() -> str:
        accelerator = get_accelerator()
        numbers = (
            ("mem_allocated", accelerator.memory_allocated()),
            ("max_mem_allocated", accelerator.max_memory_allocated()),
            ("cache_allocated", accelerator.memory_cached()),
            ("max_cache_allocated", accelerator.max_memory_cached()),
        )
        return " | " + " | ".join(f"{name}: {count / _GB:.4f} GB" for name, count in numbers)

    def log(
        self,
        names: Sequence[str],
        normalizer: float = 1.0,
        reset: bool = True,
        memory_breakdown: bool = False,
        ranks: Sequence[int] | None = None,
    ) -> None:
        """Prints these timers' sums, divided by the normalizer, on the ranks (by default rank 0)."""
        assert normalizer > 0.0
        sums = [(name, self.timers[name].elapsed(reset=reset) / normalizer) for name in names if name in self.timers]
        print_dist("time (ms)" + "".join(f" | {name}: {total:.2f}" for name, total in sums), ranks=ranks or [0])

    def get_mean(self, names: Sequence[str], normalizer: float = 1.0, reset: bool = True) -> dict[str, float]:
        """Returns {name: mean in milliseconds, divided by the normalizer}."""
        assert normalizer > 0.0
        return {name: self.timers[name].mean() / normalizer for name in names if name in self.timers}


class NoopTimer:
    """Measures nothing."""

    class Timer:
        def start(self) -> None:
            """Measures nothing."""

        def reset(self) -> None:
            """Measures nothing."""

        def stop(self, **kwargs: object) -> None:
            """Measures nothing."""

        def elapsed(self, **kwargs: object) -> float:
            return 0

        def mean(self) -> float:
            return 0

    def __init__(self) -> None:
        self.timer = self.Timer()

    def __call__(self, name: str) -> NoopTimer.Timer:
        return self.timer

    def get_timers(self) -> dict[str, Any]:
        return {}

    def log(
        self,
        names: Sequence[str],
        normalizer: float = 1.0,
        reset: bool = True,
        memory_breakdown: bool = False,
        ranks: Sequence[int] | None = None,
    ) -> None:
        """Prints nothing."""

    def get_mean(self, names: Sequence[str], normalizer: float = 1.0, reset: bool = True) -> None:
        """Returns None: nothing is measured."""


class ThroughputTimer:
    """Counts samples per second from start_step on. config: an object with `enabled` and `synchronized`."""

    def __init__(
        self,
        config: Any,
        batch_size: int | None,
        start_step: int = 2,
        steps_per_output: int | None = None,
        monitor_memory: bool = False,
        logging_fn: Callable[[str], object] | None = None,
    ) -> None:
        self.config = config
        self.batch_size = 1 if batch_size is None else batch_size
        self.start_step = start_step
        self.steps_per_output = steps_per_output
        self.monitor_memory = monitor_memory
        self.logging = logging_fn or logger.info
        self.started = self.initialized = False
        self.start_time = self.end_time = 0.0
        self.epoch_count = self.micro_step_count = self.global_step_count = 0
        self.total_elapsed_time = self.step_elapsed_time = 0.0
        if monitor_memory:
            import psutil  # noqa: F401  -- fails here, where it is asked for, and not at the first report

    def update_epoch_count(self) -> None:
        self.epoch_count += 1
        self.micro_step_count = 0

    def start(self) -> None:
        if not self.config.enabled:
            return
        self.initialized = self.started = True
        if self.global_step_count >= self.start_step:
            self.start_time = self._now()

    def stop(self, global_step: bool = False, report_speed: bool = True) -> None:
        if not self.config.enabled or not self.started:
            return
        self.started = False
        self.micro_step_count += 1
        self.global_step_count += bool(global_step)
        if not self.start_time > 0:
            return
        self.end_time = self._now()
        self.total_elapsed_time += self.end_time - self.start_time
        self.step_elapsed_time += self.end_time - self.start_time
        if global_step:
            if report_speed and self.steps_per_output and self.global_step_count % self.steps_per_output == 0:
                self._report()
            self.step_elapsed_time = 0.0

    def avg_samples_per_sec(self) -> float:
        """Returns samples per second since start_step; -inf before."""
        steps = self.global_step_count - self.start_step
        if self.global_step_count == 0 or steps <= 0 or self.total_elapsed_time == 0:
            return float("-inf")
        return self.batch_size / (self.total_elapsed_time / steps)

    def _now(self) -> float:
        if self.config.synchronized:
            get_accelerator().synchronize()
        return time.time()

    def _report(self) -> None:
        accelerator = get_accelerator()
        place = f"epoch={self.epoch_count}/micro_step={self.micro_step_count}/global_step={self.global_step_count}"
        self.logging(
            f"{place}, RunningAvgSamplesPerSec={self.avg_samples_per_sec()}, "
            f"CurrSamplesPerSec={self.batch_size / (self.step_elapsed_time + TIME_EPSILON)}, "
            f"MemAllocated={round(accelerator.memory_allocated() / _GB, 2)}GB, "
            f"MaxMemAllocated={round(accelerator.max_memory_allocated() / _GB, 2)}GB"
        )
        if self.monitor_memory:
            import psutil

            self.logging(f"{place}, vm %: {psutil.virtual_memory().percent}, swap %: {psutil.swap_memory().percent}")
