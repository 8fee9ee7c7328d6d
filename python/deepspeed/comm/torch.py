"""Provides the collectives as methods of an object, like DeepSpeed's backends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepspeed.comm import comm

if TYPE_CHECKING:
    import datetime
    from typing import Any


class TorchBackend:
    """Joins the job as init_distributed() does. Its methods are the functions of deepspeed.comm."""

    def __init__(
        self,
        backend: str | None,
        timeout: datetime.timedelta | None = None,
        init_method: str | None = None,
        rank: int = -1,
        world_size: int = -1,
        name: str = "torch",
    ) -> None:
        comm.init_distributed(backend, timeout=timeout, init_method=init_method, rank=rank, world_size=world_size)
        self.name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not callable(found := getattr(comm, name, None)):
            raise AttributeError(f"TorchBackend has no method {name!r}; deepspeed.comm lists the collectives")
        return found
