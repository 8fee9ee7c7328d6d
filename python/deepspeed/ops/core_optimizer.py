"""Defines optimizers whose arithmetic the core has.

An engine steps them in the core, at every stage. Without an engine step() uses the same arithmetic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from deepspeed import _core
from deepspeed.ops.closure import loss_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class CoreOptimizer(torch.optim.Optimizer):
    """Keeps the groups and the state of a torch optimizer. `_type` is the config's name, `_keys` are the options of a group."""

    _type: str
    _keys: tuple[str, ...] = ("lr", "betas", "eps", "weight_decay")
    _is_for_cpu = False
    _stepper: _core.OwnOptimizer | None = None
    _takes_sparse = False  # whether an element with gradient 0 stays unchanged, so that a sparse gradient may be made dense

    def _params(self) -> dict[str, Any]:
        """Returns the options that hold for all groups."""
        return {}

    def _core_optimizer(self) -> tuple[str, dict[str, Any], tuple[str, ...]]:
        return self._type, self._params(), self._keys

    def _options(self, group: Mapping[str, Any]) -> dict[str, Any]:
        return {key: group[key] for key in self._keys if key in group}

    def _own(self) -> _core.OwnOptimizer:
        if self._stepper is None:
            self._stepper = _core.OwnOptimizer(self._type, self._params(), self._options(self.param_groups[0]), self._is_for_cpu)
            self._numbers: dict[Any, int] = {}
        return self._stepper

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Updates the parameters that have a gradient; returns the closure's loss."""
        loss = loss_of(closure)
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is not None:
                    self._step_one(param, self._options(group), param)
        return loss

    def _step_one(self, param: torch.Tensor, options: dict[str, Any], key: Any) -> None:
        """Steps a parameter whose state is kept under the key."""
        stepper, given = self._own(), param.grad
        assert given is not None
        if given.is_sparse and not self._takes_sparse:
            raise RuntimeError(f"{type(self).__name__} does not support sparse gradients; use an embedding with sparse=False")
        if self._is_for_cpu and param.device.type != "cpu":
            raise AssertionError(f"{type(self).__name__} steps parameters on the CPU alone, and one is on {param.device}")
        number = self._numbers.setdefault(key, len(self._numbers))
        values = param.detach()
        wide = values.dtype in (torch.float32, torch.float64) or stepper.steps_sixteen_bits()
        flat = values.contiguous().view(-1) if wide else values.float().view(-1)
        if self.state.get(key) and not stepper.state(number)[0]:
            self._load(number, key)
        grad = given.to_dense() if given.is_sparse else given
        stepper.step(number, flat, grad.contiguous().view(-1), options, list(param.shape))
        if flat.data_ptr() != values.data_ptr():
            values.copy_(flat.view_as(values))
        tensors, steps = stepper.state(number)
        state = self.state[key]
        state["step"] = steps
        for name, tensor in tensors:
            state[name] = tensor.view(param.shape) if tensor.numel() == param.numel() else tensor

    def _load(self, number: int, key: Any) -> None:
        """Passes on the state that load_state_dict() or the script has set."""
        state = self.state[key]
        tensors = [(name, value.reshape(-1)) for name, value in state.items() if name != "step"]
        self._own().load_state(number, tensors, int(state.get("step", 0)))

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._stepper = None
