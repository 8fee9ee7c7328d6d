"""Joins the process to torch.distributed's default group and to the core's world.

The core has connections of its own. Its collectives run on threads beside the script, which may use the default group at any time, and
two threads do not keep the same order on all ranks.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import signal
import socket
import sys
import threading
import weakref
from typing import TYPE_CHECKING

import torch.distributed as dist

from deepspeed import _core

if TYPE_CHECKING:
    import datetime
    from types import FrameType
    from typing import Any

    import torch
    from torch.distributed import ProcessGroup

engines: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()  # each is a living DeepSpeedEngine
_joined: ProcessGroup | None = None  # the default group whose ranks form the core's world


def ensure_world(
    backend: str | None = None,
    timeout: datetime.timedelta | None = None,
    init_method: str | None = None,
    rank: int = -1,
    world_size: int = -1,
    port: int = 29500,
    auto_mpi_discovery: bool = True,
) -> None:
    """Makes the default group if there is none, and the core's world of its ranks."""
    global _joined
    if not dist.is_initialized():
        _init_process_group(backend, timeout, init_method, rank, world_size, port, auto_mpi_discovery)
    group = dist.distributed_c10d._get_default_group()
    if group is _joined and _core.has_world():
        return
    _watch_interrupts()
    _join(group, timeout)  # also after the script has destroyed its group and made another
    _joined = group
    atexit.unregister(leave_world)
    atexit.register(leave_world)


def leave_world() -> None:
    """Releases engines, the core's world and torch.distributed's groups before the interpreter ends.

    A group's thread that drops a Python tensor after the interpreter's end would abort the process. So the groups are destroyed here, and
    their threads joined.
    """
    global _joined
    _joined = None
    has_failed = hasattr(sys, "last_value")  # an uncaught error ends the script
    if has_failed:
        _core.leave_world(has_failed)
    for engine in list(engines):
        engine.__dict__["_core"] = None
    if not has_failed:
        _core.leave_world(has_failed)
    if not dist.is_initialized():
        return
    if dist.get_backend() == "gloo":
        held = _core.HeldGroups(list(dist.distributed_c10d._world.pg_map))
        dist.destroy_process_group()
        held.release()
    elif has_failed:
        # torch 2.15 waits for its device when the process ends. Other ranks may never give the device their parts.
        with contextlib.suppress(RuntimeError):
            dist.distributed_c10d._abort_process_group()


def _watch_interrupts() -> None:
    """Lets Ctrl-C end a wait of the core. The script's handler runs as usual."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        return
    if not getattr(handler, "_notes_interrupts", False):

        def note(number: int, frame: FrameType | None) -> object:
            _core.note_interrupt()
            return handler(number, frame)

        note._notes_interrupts = True  # type: ignore[attr-defined]  # the mark that getattr() above asks for
        signal.signal(signal.SIGINT, note)
    _core.watch_interrupts()


def _init_process_group(
    backend: str | None,
    timeout: datetime.timedelta | None,
    init_method: str | None,
    rank: int,
    world_size: int,
    port: int,
    auto_mpi_discovery: bool,
) -> None:
    environ = os.environ
    if init_method is None and "RANK" not in environ and auto_mpi_discovery:
        _read_mpi_variables()
    if init_method is None:
        environ.setdefault("RANK", "0")
        environ.setdefault("WORLD_SIZE", "1")
        environ.setdefault("LOCAL_RANK", environ["RANK"])
        environ.setdefault("MASTER_ADDR", "127.0.0.1")
        environ.setdefault("MASTER_PORT", str(port))
    options: dict[str, Any] = dict(backend=backend or default_backend())
    if timeout is not None:
        options["timeout"] = timeout
    if _meets_by_the_core(init_method, rank):
        seconds = timeout.total_seconds() if timeout is not None else 0.0
        job = _core.open_store(init_method or "", rank, world_size, seconds)
        options["store"] = dist.distributed_c10d.PrefixStore("default_pg", job.store)
        rank, world_size = job.rank, job.world_size
        if job.is_one_machine and any(name == "lo" for _, name in socket.if_nameindex()):
            # Otherwise torch's Gloo looks up the address of the host name, and listens there.
            environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    elif init_method is not None:
        options["init_method"] = init_method
    if rank >= 0:
        options["rank"] = rank
    if world_size > 0:
        options["world_size"] = world_size
    dist.init_process_group(**options)


def _meets_by_the_core(init_method: str | None, rank: int) -> bool:
    """Returns whether the core opens the store.

    It does so unless the address is a file or has arguments that torch reads. Torch's own store listens on every address of the machine,
    for everyone.
    """
    if rank < 0 and "RANK" not in os.environ:
        return False  # torch reports what is missing
    return init_method in (None, "env://") or re.fullmatch(r"tcp://[^/?#]+:[0-9]+", init_method) is not None


def default_backend() -> str:
    """Returns "nccl" if the accelerator is a GPU, otherwise "gloo"."""
    from deepspeed.accelerator import get_accelerator

    return get_accelerator().communication_backend_name()


def _read_mpi_variables() -> None:
    """Takes rank and size from the variables of Open MPI, MPICH or Slurm, if any are set."""
    for rank, size, local in (
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
        ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
        ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
    ):
        if rank in os.environ and size in os.environ:
            os.environ["RANK"] = os.environ[rank]
            os.environ["WORLD_SIZE"] = os.environ[size]
            os.environ["LOCAL_RANK"] = os.environ.get(local, "0")
            return


def _join(group: ProcessGroup, timeout: datetime.timedelta | None) -> None:
    seconds = timeout.total_seconds() if timeout is not None else 1800.0
    store = dist.distributed_c10d._get_default_store()
    local_rank = int(os.environ.get("LOCAL_RANK", -1))
    local_size = int(os.environ.get("LOCAL_WORLD_SIZE", os.environ.get("LOCAL_SIZE", -1)))
    if not 0 <= local_rank < local_size <= group.size():
        local_rank = local_size = -1  # the core asks the ranks which of them share a machine
    _core.adopt_world(group, store, local_rank, local_size, seconds)
