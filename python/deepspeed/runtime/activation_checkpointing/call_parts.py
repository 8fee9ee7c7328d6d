"""The tensors of a call, apart from all else that it takes and gives."""

import contextlib

import torch
from torch.utils import _pytree as pytree

from deepspeed.runtime.error_place import noting


class CallParts:
    """Takes the tensors out of the arguments of a call, and runs it on others in their places."""

    def __init__(self, function, args, kwargs, name):
        self._function, self._name = function, name
        values, self._form = pytree.tree_flatten((args, kwargs))
        self._inputs = [value for value in values if isinstance(value, torch.Tensor)]
        self._rest = [_PLACE if isinstance(value, torch.Tensor) else value for value in values]
        self._first = None

    def take_inputs(self):
        """Returns the tensors, and keeps none of them."""
        inputs, self._inputs = self._inputs, None
        return inputs

    def run(self, tensors):
        """Returns the tensors of the function's result. That of the first run waits for result_with(); what further ones raise says so."""
        places = iter(tensors)
        args, kwargs = pytree.tree_unflatten([next(places) if value is _PLACE else value for value in self._rest], self._form)
        with contextlib.nullcontext() if self._first is None else noting(lambda: f"the recomputation of {self._name}"):
            result = self._function(*args, **kwargs)
        values, form = pytree.tree_flatten(tuple(result) if isinstance(result, list) else result)
        outputs = [value for value in values if isinstance(value, torch.Tensor)]
        if self._first is None:
            self._first = [_PLACE if isinstance(value, torch.Tensor) else value for value in values], form
        return outputs

    def result_with(self, outputs):
        """Returns the result of the first run with these tensors in place of its own."""
        places = iter(outputs)
        values, form = self._first
        return pytree.tree_unflatten([next(places) if value is _PLACE else value for value in values], form)


_PLACE = object()
