"""Clocks of parts of a program, by name, and of its throughput."""

import time

from deepspeed.accelerator import get_accelerator
from deepspeed.utils.logging import logger, print_dist

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


def trim_mean(data, trim_percent):
    """Returns the mean without that share of the smallest and of the largest values; the list stays as it is."""
    assert 0.0 <= trim_percent <= 1.0
    if not data:
        return 0
    cut = int(round(len(data) * trim_percent))
    kept = sorted(data)[cut : len(data) - cut]
    return sum(kept) / len(kept) if kept else float("nan")


class SynchronizedWallClockTimer:
    """Holds a timer a name. A timer waits for the device's work before it reads the clock."""

    class Timer:
        """Adds up the times between start() and stop(), in milliseconds."""

        def __init__(self, name):
            self.name_ = name
            self.started_ = False
            self.elapsed_records = []
            self._begin = 0.0

        def start(self):
            assert not self.started_, f"{self.name_} timer has already been started"
            get_accelerator().synchronize()
            self._begin = time.perf_counter()
            self.started_ = True

        def stop(self, reset=False, record=False):
            assert self.started_, f"{self.name_} timer is not started"
            get_accelerator().synchronize()
            if reset:
                self.elapsed_records.clear()
            self.elapsed_records.append((time.perf_counter() - self._begin) * 1e3)
            self.started_ = False

        def reset(self):
            self.started_ = False
            self.elapsed_records.clear()

        def elapsed(self, reset=True):
            """Returns the sum; a timer that runs goes on."""
            is_running = self.started_
            if is_running:
                self.stop()
            total = sum(self.elapsed_records)
            if reset:
                self.reset()
            if is_running:
                self.start()
            return total

        def mean(self):
            return trim_mean(self.elapsed_records, 0.1)

    def __init__(self):
        self.timers = {}

    def get_timers(self):
        return self.timers

    def __call__(self, name):
        if name not in self.timers:
            self.timers[name] = self.Timer(name)
        return self.timers[name]

    @staticmethod
    def memory_usage():
        accelerator = get_accelerator()
        numbers = (
            ("mem_allocated", accelerator.memory_allocated()),
            ("max_mem_allocated", accelerator.max_memory_allocated()),
            ("cache_allocated", accelerator.memory_cached()),
            ("max_cache_allocated", accelerator.max_memory_cached()),
        )
        return " | " + " | ".join(f"{name}: {count / _GB:.4f} GB" for name, count in numbers)

    def log(self, names, normalizer=1.0, reset=True, memory_breakdown=False, ranks=None):
        """Prints the sums of these timers, each divided by the normalizer, on the ranks (by default rank 0)."""
        assert normalizer > 0.0
        sums = [(name, self.timers[name].elapsed(reset=reset) / normalizer) for name in names if name in self.timers]
        print_dist("time (ms)" + "".join(f" | {name}: {total:.2f}" for name, total in sums), ranks=ranks or [0])

    def get_mean(self, names, normalizer=1.0, reset=True):
        """Returns {name: mean in milliseconds, divided by the normalizer}."""
        assert normalizer > 0.0
        return {name: self.timers[name].mean() / normalizer for name in names if name in self.timers}


class NoopTimer:
    """Measures nothing."""

    class Timer:
        def start(self):
            """Does nothing."""

        def reset(self):
            """Does nothing."""

        def stop(self, **kwargs):
            """Does nothing."""

        def elapsed(self, **kwargs):
            return 0

        def mean(self):
            return 0

    def __init__(self):
        self.timer = self.Timer()

    def __call__(self, name):
        return self.timer

    def get_timers(self):
        return {}

    def log(self, names, normalizer=1.0, reset=True, memory_breakdown=False, ranks=None):
        """Does nothing."""

    def get_mean(self, names, normalizer=1.0, reset=True):
        """Does nothing."""


class ThroughputTimer:
    """Counts samples a second, from start_step on. config: an object with `enabled` and `synchronized`."""

    def __init__(self, config, batch_size, start_step=2, steps_per_output=None, monitor_memory=False, logging_fn=None):
        self.config = config
        self.batch_size = 1 if batch_size is None else batch_size
        self.start_step = start_step
        self.steps_per_output = steps_per_output
        self.monitor_memory = monitor_memory
        self.logging = logging_fn or logger.info
        self.started = self.initialized = False
        self.start_time = self.end_time = 0
        self.epoch_count = self.micro_step_count = self.global_step_count = 0
        self.total_elapsed_time = self.step_elapsed_time = 0
        if monitor_memory:
            import psutil  # noqa: F401  -- fails here, where it is asked for, and not at the first report

    def update_epoch_count(self):
        self.epoch_count += 1
        self.micro_step_count = 0

    def start(self):
        if not self.config.enabled:
            return
        self.initialized = self.started = True
        if self.global_step_count >= self.start_step:
            self.start_time = self._now()

    def stop(self, global_step=False, report_speed=True):
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
            self.step_elapsed_time = 0

    def avg_samples_per_sec(self):
        """Returns samples a second since start_step; -inf before."""
        steps = self.global_step_count - self.start_step
        if self.global_step_count == 0 or steps <= 0 or self.total_elapsed_time == 0:
            return float("-inf")
        return self.batch_size / (self.total_elapsed_time / steps)

    def _now(self):
        if self.config.synchronized:
            get_accelerator().synchronize()
        return time.time()

    def _report(self):
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
