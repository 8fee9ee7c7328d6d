"""Times collectives for a CommsLogger."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING

from deepspeed.accelerator import get_accelerator
from deepspeed.comm.utils import get_msg_size_from_args
from deepspeed.utils.comms_logging import CommsLogger, get_caller_func

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, TypeVar

    R = TypeVar("R")

comms_logger = CommsLogger()


def timed_op(func: Callable[..., R], record_name: str | None = None, keywords: Mapping[str, str] | None = None) -> Callable[..., R]:
    """Returns the collective with the further arguments prof, log_name and debug.

    While the log is on, its calls are timed. keywords: {DeepSpeed's name of an argument: the function's name}.
    """
    name = record_name or func.__name__

    @functools.wraps(func)
    def call(*args: Any, prof: bool = False, log_name: str = name, debug: bool | None = None, **kwargs: Any) -> R:
        for own, other in (keywords or {}).items():
            if own in kwargs:
                kwargs[other] = kwargs.pop(own)
        if not (comms_logger.enabled and (prof or comms_logger.prof_all or log_name in comms_logger.prof_ops)):
            return func(*args, **kwargs)
        if comms_logger.debug:
            log_name = f"{log_name} | [Caller Func: {get_caller_func(2)}]"
        get_accelerator().synchronize()
        begin = time.perf_counter()
        try:
            return func(*args, **kwargs)
        finally:
            get_accelerator().synchronize()
            milliseconds = max((time.perf_counter() - begin) * 1e3, 1e-6)
            comms_logger.append(func.__name__, log_name, milliseconds, get_msg_size_from_args(func, *args, **kwargs))

    return call
