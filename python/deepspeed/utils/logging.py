"""Provides the package's logger, a logging.Logger as DeepSpeed's."""

from __future__ import annotations

import functools
import logging
import re
import sys
from typing import TYPE_CHECKING, cast

from deepspeed._errors import python_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    class DeepSpeedLogger(logging.Logger):
        """Adds this package's own method to logging.Logger."""

        def warning_once(self, *args: Any, **kwargs: Any) -> None: ...


log_levels = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}


def _make_logger() -> DeepSpeedLogger:
    made = logging.getLogger("DeepSpeed")
    made.setLevel(logging.WARNING)
    made.propagate = False
    handler = logging.StreamHandler(stream=sys.stdout)
    handler.setFormatter(logging.Formatter("[%(asctime)s] [%(levelname)s] [%(filename)s:%(lineno)d:%(funcName)s] %(message)s"))
    made.addHandler(handler)
    return cast("DeepSpeedLogger", made)


logger = _make_logger()


def _rank() -> int:
    import torch.distributed as dist

    return dist.get_rank() if dist.is_available() and dist.is_initialized() else -1


def log_dist(message: object, ranks: Sequence[int] | None = None, level: int = logging.INFO) -> None:
    """Logs on these ranks: [-1] means all, [0] rank 0. Before there is a group, each process logs."""
    rank = _rank()
    if rank == -1 or not ranks or -1 in ranks or rank in ranks:
        logger.log(level, f"[Rank {rank}] {message}")


def warning_on_rank_0(message: object) -> None:
    """Logs a warning of all ranks only on rank 0, such as one about the config."""
    if _rank() <= 0:
        logger.warning(message)


@functools.lru_cache(None)
def warning_once(*args: Any, **kwargs: Any) -> None:
    """Logs a warning only once."""
    logger.warning(*args, **kwargs)


logger.warning_once = warning_once  # type: ignore[method-assign]  # as DeepSpeed puts it there


def print_configuration(args: object, name: str) -> None:
    logger.info(f"{name}:")
    for arg in sorted(vars(args)):
        logger.info("  {} {} {}".format(arg, "." * (29 - len(arg)), getattr(args, arg)))


def get_current_level() -> int:
    return logger.getEffectiveLevel()


def get_log_level_from_string(log_level_str: str) -> int:
    if log_level_str.lower() not in log_levels:
        raise ValueError(f"{log_level_str} is not one of the log levels {sorted(log_levels)}")
    return log_levels[log_level_str.lower()]


def set_log_level_from_string(log_level_str: str, custom_logger: logging.Logger | None = None) -> None:
    (custom_logger or logger).setLevel(get_log_level_from_string(log_level_str))


def should_log_le(max_log_level_str: str) -> bool:
    """Returns whether messages of this level, or of a less detailed one, are logged."""
    if not isinstance(max_log_level_str, str):
        raise ValueError("max_log_level_str must be a string")
    return get_current_level() <= get_log_level_from_string(max_log_level_str)


@functools.lru_cache(None)
def _log_once(message: object, ranks: tuple[int, ...] | None, level: int) -> None:
    log_dist(message, ranks=list(ranks) if ranks is not None else None, level=level)


def log_dist_once(message: object, ranks: Sequence[int] | None = None, level: int = logging.INFO) -> None:
    """Logs a message on these ranks only once."""
    _log_once(message, tuple(ranks) if ranks is not None else None, level)


def print_dist(message: object, ranks: Sequence[int] | None = None) -> None:
    """Prints on these ranks."""
    rank = _rank()
    if rank == -1 or not ranks or -1 in ranks or rank in ranks:
        print(f"[Rank {rank}] {message}")


def print_json_dist(message: Mapping[str, Any], ranks: Sequence[int] | None = None, path: Any = None) -> None:
    """Writes a dict as JSON into the file, on these ranks."""
    import json

    rank = _rank()
    if rank == -1 or not ranks or -1 in ranks or rank in ranks:
        with open(path, "w") as file:
            json.dump(dict(message, rank=rank), file)


_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)
# Lines that wall_clock_breakdown and memory_breakdown turn on.
_ASKED_FOR = re.compile(r"\[rank \d+\] (time \(ms\) \||\[engine\] memory (before|after) )")


def _write_line(level: int, line: str) -> None:
    """Writes a line of the core. Lines that a config key turns on are written at every level of the logger, as in DeepSpeed."""
    level, line = _LEVELS[min(level, 3)], python_words(line)
    if logger.isEnabledFor(level) or not _ASKED_FOR.match(line):
        logger.log(level, line)
    else:
        logger.handle(logger.makeRecord(logger.name, level, __file__, 0, line, (), None, func="core"))


def follow_core() -> None:
    """Sends the core's lines to the logger, until the process ends."""
    import atexit

    from deepspeed import _core

    _core.set_log_sink(_write_line)
    atexit.register(_core.clear_log_sink)
