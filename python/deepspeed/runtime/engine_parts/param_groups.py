"""Manages an engine's parameter groups: the client's own dicts, and the optimizer over them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from deepspeed.runtime.optimizer_parts.basic_optimizer import basic_class, make_basic
from deepspeed.runtime.optimizer_parts.optimizer_class import optimizer_class

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from deepspeed._client_optimizer import OptimizerPlan
    from deepspeed._types import CoreGroup
    from deepspeed.runtime.base_optimizer import DeepSpeedOptimizer


class ParamGroups:
    """Finds the groups of an engine's parameters, and makes the optimizer over them."""

    def __init__(self, plan: OptimizerPlan, names: Mapping[str, torch.nn.Parameter]) -> None:
        self._plan, self._names = plan, names
        self._facade: DeepSpeedOptimizer | None = None

    @property
    def client(self) -> torch.optim.Optimizer | None:
        """Returns the script's own optimizer; None if the config names one."""
        return self._plan.client

    def facade_of(self, core_groups: Sequence[CoreGroup]) -> DeepSpeedOptimizer:
        """Returns the optimizer that clients see, over dicts with the core's options."""
        if self._facade is None:
            dicts = self._dicts_for(core_groups)
            config, client = self._plan.config, self._plan.client
            kind = basic_class(config) if client is None else type(client)
            make = (lambda: client) if client is not None else kind and (lambda: make_basic(kind, config, dicts))
            self._facade = optimizer_class(config, kind)(dicts, client, make)
        return self._facade

    def _dicts_for(self, core_groups: Sequence[CoreGroup]) -> list[dict[str, Any]]:
        """Returns the client's dicts, completed with the core's options.

        If the core has split one of them (Muon), it returns one dict for each of the core's groups.
        """
        dicts, given = self._plan.dicts, [index for _, _, index in core_groups]
        if len(set(given)) < len(given):
            self._plan.dicts = dicts = [
                {**dicts[index], **options, "params": [self._names[name] for name in names]} for options, names, index in core_groups
            ]
            return dicts
        for options, _, index in core_groups:
            for key, value in options.items():
                dicts[index].setdefault(key, value)
        return dicts

    def dict_with(self, name: str) -> dict[str, Any]:
        param = self._names[name]
        return next(group for group in self._plan.dicts if any(param is held for held in group["params"]))

    def index_of(self, group: Mapping[str, Any]) -> int:
        return next(index for index, held in enumerate(self._plan.dicts) if held is group)
