"""Defines the base of optimizers whose ranks exchange one bit for each element."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepspeed._errors import NotSupportedError
from deepspeed.ops.core_optimizer import CoreOptimizer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, NoReturn

    from torch.optim.optimizer import ParamsT


class OneBitOptimizer(CoreOptimizer):
    """Shows groups and options. Only an engine can step it, in the core, which knows the ranks."""

    _own_keys: tuple[str, ...] = ()  # arguments that hold for all groups

    def __init__(
        self,
        params: ParamsT,
        defaults: dict[str, Any],
        amsgrad: bool,
        eps_inside_sqrt: bool,
        comm_backend_name: str,
        own: Mapping[str, Any],
    ) -> None:
        name = type(self).__name__
        if amsgrad:
            raise RuntimeError(f"{name} does not support the AMSGrad variant.")
        if eps_inside_sqrt:
            raise NotSupportedError(f"{name} with eps_inside_sqrt: leave it out")
        if comm_backend_name != "nccl":
            raise NotSupportedError(
                f"{name} with comm_backend_name {comm_backend_name!r}: ranks meet over the engine's backend; leave it out"
            )
        super().__init__(params, defaults)
        for key in self._own_keys:
            setattr(self, key, own[key])

    def _params(self) -> dict[str, Any]:
        return {key: getattr(self, key) for key in self._own_keys}

    def step(self, closure: Any = None) -> NoReturn:
        raise NotSupportedError(
            f"{type(self).__name__}.step() without an engine: name {self._type} as optimizer.type of the config, "
            "and call step() of the engine"
        )
