"""Defines MuonWithAuxAdam: Muon for matrices, Adam for everything else (Jordan, 2024)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepspeed._errors import NotSupportedError
from deepspeed.ops.core_optimizer import CoreOptimizer

if TYPE_CHECKING:
    from typing import Any, NoReturn

_MUON = {"lr": 0.02, "momentum": 0.95, "weight_decay": 0, "ns_method": "gram"}
_ADAM = {"lr": 3e-4, "betas": (0.9, 0.95), "eps": 1e-10, "weight_decay": 0}


class MuonWithAuxAdam(CoreOptimizer):
    """Takes groups for Muon, with `use_muon: True`, and for Adam, with `use_muon: False`.

    Muon's groups hold matrices. An engine steps it.
    """

    _type = "Muon"
    _keys = ("use_muon", "lr", "momentum", "weight_decay", "ns_method", "betas", "eps")

    def __init__(self, param_groups: list[dict[str, Any]]) -> None:
        for group in param_groups:
            if "use_muon" not in group:
                raise ValueError("MuonWithAuxAdam: a group has no use_muon; mark groups of matrices True, and all others False")
            for key, value in (_MUON if group["use_muon"] else _ADAM).items():
                group.setdefault(key, value)
        super().__init__(param_groups, {})

    def step(self, closure: Any = None) -> NoReturn:
        raise NotSupportedError("MuonWithAuxAdam.step() outside of an engine is not supported: give the optimizer to initialize()")
