"""Logs collectives: how many, how large, how long, and their bandwidths."""

from __future__ import annotations

import datetime
import math
import sys
from typing import TYPE_CHECKING

from deepspeed.utils.logging import log_dist

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

_TRIMMED = 0.1  # the share of smallest and of largest values that means leave out
_GATHERS = ("all_gather", "all_gather_into_tensor", "reduce_scatter", "reduce_scatter_tensor")
_REDUCTIONS = ("all_reduce", "all_reduce_coalesced", "inference_all_reduce")
_COLUMNS = ("Comm. Op", "Message Size", "Count")
_SUMMARY = ("Total Latency(ms)", "Avg Latency(ms)", "tput_avg (Gbps)", "busbw_avg (Gbps)")
_STRAGGLERS = ("Total comm lat(ms)", "Total straggler(ms)", "Avg comm lat(ms)", "Avg straggler(ms)")


def get_caller_func(frame: int = 3) -> str:
    """Returns the name of the function that is `frame` frames up."""
    return sys._getframe(frame).f_code.co_name


def convert_size(size_bytes: float) -> str:
    """Returns a size in readable form, such as "1.5 KB"."""
    if size_bytes == 0:
        return "0B"
    units = ("B", "KB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB")
    power = min(int(math.log(size_bytes, 1024)), len(units) - 1)
    return f"{round(size_bytes / 1024**power, 2)} {units[power]}"


def calc_bw_log(comm_op: str, size: int, duration: float) -> tuple[float, float]:
    """Returns the bandwidths of algorithm and bus in Gbps.

    size: bytes on a rank. duration: milliseconds. The bus bandwidth follows the rules of nccl-tests: what each link carries, independent
    of the number of ranks.
    """
    import torch.distributed as dist

    ranks = dist.get_world_size()
    whole = size * ranks if comm_op in _GATHERS else size
    algorithm = bus = whole / duration
    if comm_op in _REDUCTIONS:
        algorithm, bus = 2 * whole / duration, whole / duration * 2 * (ranks - 1) / ranks
    elif comm_op in _GATHERS or comm_op == "all_to_all_single":
        bus = whole / duration * (ranks - 1) / ranks
    return algorithm * 8 / 1e6, bus * 8 / 1e6


class CommsLogger:
    """Holds {name: {message size: [count, latencies in ms, algorithm bandwidths, bus bandwidths]}}."""

    def __init__(self) -> None:
        self.comms_dict: dict[str, dict[int, list[Any]]] = {}
        self.enabled = False
        self.verbose = False
        self.debug = False
        self.prof_ops: list[str] = []
        self.prof_all = True

    def configure(self, comms_config: Any) -> None:
        """Takes the section comms_logger from an object with `comms_logger_enabled` and `comms_logger`."""
        self.enabled = comms_config.comms_logger_enabled
        if self.enabled:
            for name in ("verbose", "debug", "prof_ops", "prof_all"):
                setattr(self, name, getattr(comms_config.comms_logger, name))

    def start_profiling_comms(self) -> None:
        """Logs all collectives."""
        self.prof_all = True

    def stop_profiling_comms(self) -> None:
        """Logs only the operations of start_profiling_op() and calls with prof=True."""
        self.prof_all = False

    def start_profiling_op(self, op_name_list: Iterable[str]) -> None:
        self.prof_ops = list(dict.fromkeys([*self.prof_ops, *op_name_list]))

    def stop_profiling_op(self, op_name_list: Iterable[str]) -> None:
        self.prof_ops = [name for name in self.prof_ops if name not in op_name_list]

    def append(self, raw_name: str, record_name: str, latency: float, msg_size: int) -> None:
        """Adds one call of the collective raw_name. latency: milliseconds. msg_size: bytes."""
        algorithm, bus = calc_bw_log(raw_name, msg_size, latency)
        entry = self.comms_dict.setdefault(record_name, {}).setdefault(msg_size, [0, [], [], []])
        entry[0] += 1
        for values, value in zip(entry[1:], (latency, algorithm, bus)):
            values.append(value)
        if self.verbose:
            log_dist(
                f"comm op: {record_name} | time (ms): {latency:.2f} | msg size: {convert_size(msg_size)} | "
                f"algbw (Gbps): {algorithm:.2f} | busbw (Gbps): {bus:.2f}",
                [0],
            )

    def get_raw_data(self) -> dict[str, dict[int, list[Any]]]:
        return self.comms_dict.copy()

    def has_data(self) -> bool:
        return bool(self.comms_dict)

    def reset_data(self) -> None:
        self.comms_dict.clear()

    def get_operation_names(self) -> list[str]:
        return list(self.comms_dict)

    def get_total_operations(self) -> int:
        return sum(entry[0] for sizes in self.comms_dict.values() for entry in sizes.values())

    def get_operation_summary(self, operation_name: str) -> dict[int, dict[str, Any]] | None:
        """Returns {message size: its figures}; None for a name without calls."""
        if operation_name not in self.comms_dict:
            return None
        return {size: _summary(size, entry) for size, entry in self.comms_dict[operation_name].items()}

    def log_all(self, print_log: bool = True, show_straggler: bool = False, return_dict: bool = False) -> dict[str, Any] | None:
        """Prints and returns the log. show_straggler compares the ranks' latencies, and is collective."""
        result: dict[str, Any] = {"summary": self._summaries(), "straggler_analysis": None, "metadata": _metadata()}
        if print_log:
            _print_table(result["summary"], _SUMMARY, _numbers_of_summary)
            if not self.enabled and not result["summary"]:
                print('nothing was logged: {"comms_logger": {"enabled": true}} in the config, or comm.configure(enabled=True), turns it on')
        if show_straggler:
            result["straggler_analysis"] = self._stragglers()
            if print_log:
                print("Breakdown with straggler effect")
                _print_table(result["straggler_analysis"], _STRAGGLERS, _numbers_of_stragglers)
        return result if return_dict else None

    def _summaries(self) -> dict[str, dict[int, dict[str, Any]]]:
        return {
            name: {size: _summary(size, entry) for size, entry in sorted(sizes.items())} for name, sizes in self.comms_dict.copy().items()
        }

    def _stragglers(self) -> dict[str, dict[int, dict[str, Any]]]:
        return {
            name: {size: _straggler(size, entry) for size, entry in sorted(sizes.items())} for name, sizes in self.comms_dict.copy().items()
        }


def _mean(values: Sequence[float]) -> float:
    from deepspeed.utils.timer import trim_mean

    return trim_mean(values, _TRIMMED)


def _summary(size: int, entry: list[Any]) -> dict[str, Any]:
    count, latencies, algorithm, bus = entry
    return {
        "count": count,
        "total_latency_ms": sum(latencies),
        "avg_latency_ms": _mean(latencies),
        "tput_avg_gbps": _mean(algorithm),
        "busbw_avg_gbps": _mean(bus),
        "msg_size_bytes": size,
        "msg_size_str": convert_size(size),
    }


def _straggler(size: int, entry: list[Any]) -> dict[str, Any]:
    """Compares this rank's latencies with the shortest of all ranks. The difference is time spent waiting for other ranks."""
    import torch
    import torch.distributed as dist

    from deepspeed.accelerator import get_accelerator

    own = torch.tensor(entry[1], device=get_accelerator().current_device_name())
    shortest = own.clone()
    dist.all_reduce(shortest, op=dist.ReduceOp.MIN)
    waiting = own - shortest
    return {
        "count": entry[0],
        "total_comm_lat_ms": shortest.sum().item(),
        "total_straggler_ms": waiting.sum().item(),
        "avg_comm_lat_ms": _mean(shortest.tolist()),
        "avg_straggler_ms": _mean(waiting.tolist()),
        "msg_size_bytes": size,
        "msg_size_str": convert_size(size),
    }


def _metadata() -> dict[str, Any]:
    import torch.distributed as dist

    joined = dist.is_initialized()
    return {
        "world_size": dist.get_world_size() if joined else 1,
        "rank": dist.get_rank() if joined else 0,
        "timestamp": datetime.datetime.now().isoformat(),
    }


def _numbers_of_summary(numbers: Mapping[str, Any]) -> list[float]:
    return [numbers[key] for key in ("total_latency_ms", "avg_latency_ms", "tput_avg_gbps", "busbw_avg_gbps")]


def _numbers_of_stragglers(numbers: Mapping[str, Any]) -> list[float]:
    return [numbers[key] for key in ("total_comm_lat_ms", "total_straggler_ms", "avg_comm_lat_ms", "avg_straggler_ms")]


def _print_table(
    operations: Mapping[str, Mapping[int, Mapping[str, Any]]],
    columns: tuple[str, ...],
    numbers_of: Callable[[Mapping[str, Any]], list[float]],
) -> None:
    print("".join(f"{column:<20}" for column in _COLUMNS + columns))
    for name, sizes in operations.items():
        print(name)
        for numbers in sizes.values():
            row = "".join(f"{number:<20.2f}" for number in numbers_of(numbers))
            print(f"{' ':<20}{numbers['msg_size_str']:<20}{numbers['count']:<20}{row}")
