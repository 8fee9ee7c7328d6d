"""Optimizers whose arithmetic the core has: an engine steps them there, at every stage."""
import torch

from deepspeed._errors import NotSupportedError


class CoreOptimizer(torch.optim.Optimizer):
    """Holds groups for an engine. `_type` is the config's name, `_keys` are the options that a group has."""

    _type = None
    _keys = ("lr", "betas", "eps", "weight_decay")

    def _params(self):
        """Returns the options that hold for all groups."""
        return {}

    def _core_optimizer(self):
        return self._type, self._params(), self._keys

    def step(self, closure=None):
        raise NotSupportedError(
            f"{type(self).__name__}.step() without an engine is not supported yet: pass the optimizer to deepspeed.initialize()"
        )
