"""The collectives as methods of an object, as DeepSpeed's backends offer them."""

from deepspeed.comm import comm


class TorchBackend:
    """Joins the job as init_distributed() does; its methods are the functions of deepspeed.comm."""

    def __init__(self, backend, timeout=None, init_method=None, rank=-1, world_size=-1, name="torch"):
        comm.init_distributed(backend, timeout=timeout, init_method=init_method, rank=rank, world_size=world_size)
        self.name = name

    def __getattr__(self, name):
        if name.startswith("_") or not callable(found := getattr(comm, name, None)):
            raise AttributeError(f"TorchBackend has no method {name!r}; deepspeed.comm lists the collectives")
        return found
