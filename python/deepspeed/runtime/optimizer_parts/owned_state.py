"""Shows what this rank's optimizer owns, as tensors under DeepSpeed's names.

They are views of the core's memory if it keeps a part as one tensor, otherwise copies: of masters in two halves, and of states on a disk.
They are for reading: writing into a copy does not reach the core.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch

from deepspeed import _core

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class Part:
    """Describes what DeepSpeed keeps as one flat tensor. It is a sub-group at stage 3, otherwise this rank's partition of a group."""

    group: int
    begin: int  # within what this rank owns of the group
    end: int
    names: list[str]  # of the parameters, in flat order
    pieces: list[tuple[str, int, int]]  # (name, begin, end) of the elements that this rank owns


class OwnedState:
    """Reads parts, masters and states. core: a function that returns the core's engine. params: {name: parameter}."""

    def __init__(self, core: Callable[[], _core.TrainingEngine], params: Mapping[str, torch.Tensor], counts_in_tensors: bool) -> None:
        self._core = core
        self._params = params
        self._counts_in_tensors = counts_in_tensors  # torch's optimizers count their steps in tensors
        self._parts: list[Part] | None = None
        self._seen: weakref.WeakValueDictionary[Any, torch.Tensor] = (
            weakref.WeakValueDictionary()
        )  # tensors in use, by memory: each place has one object

    def parts(self) -> list[Part]:
        if self._parts is None:
            self._parts = [Part(*part) for part in _core.owned_parts(self._core())]
        return self._parts

    def params(self) -> list[list[torch.Tensor]]:
        """Returns the parameters of each part."""
        return [[self._params[name] for name in part.names] for part in self.parts()]

    def shapes(self) -> list[dict[str, torch.Size]]:
        """Returns {name: shape} of each part."""
        return [{name: self._params[name].shape for name in part.names} for part in self.parts()]

    def masters(self) -> list[torch.Tensor]:
        """Returns the flat master weights of each part."""
        return [self._read(part)[0] for part in self.parts()]

    def masters_of_params(self) -> list[list[torch.Tensor]]:
        """Returns the masters of each part's parameters, in their shapes, if this rank owns them whole."""
        return [self._cut(part, master) for part, master in zip(self.parts(), self.masters())]

    def weights(self) -> list[torch.Tensor | None]:
        """Returns each part's flat weights in the model's dtype. At stage 3 they are this rank's shards, otherwise the whole group."""
        flats = [_core.flat_weights(self._core(), part.group) for part in self.parts()]
        if self._core().zero_optimization_stage() < 3:
            return [None if flat is None else self._known(flat) for flat in flats]
        return [None if flat is None else self._known(flat[part.begin : part.end]) for part, flat in zip(self.parts(), flats)]

    def gradients(self) -> dict[int, list[torch.Tensor]]:
        """Returns {index of the part: reduced gradients of its parameters, flat}.

        Empty between step() and the next backward. At stage 3 each has the size of a shard, with padding.
        """
        found = {}
        for index, part in enumerate(self.parts()):
            flat = _core.owned_gradient(self._core(), part.group)
            if flat is not None:
                found[index] = [flat[part.begin + begin : part.begin + end] for begin, end in self._places(part)]
        return found

    def reduced(self) -> list[torch.Tensor | None]:
        """Returns each part's reduced gradients on this rank; None for those without."""
        flats = [(part, _core.owned_gradient(self._core(), part.group)) for part in self.parts()]
        return [None if flat is None else flat[part.begin : part.end] for part, flat in flats]

    def sums(self) -> dict[int, torch.Tensor]:
        """Returns {index of the parameter: this rank's elements of the window's gradient sum}."""
        numbers = {name: number for number, name in enumerate(self._params)}
        found = {}
        for part in self.parts():
            flat = _core.owned_sums(self._core(), part.group)
            if flat is None:
                continue
            for name, begin, end in part.pieces:
                found[numbers[name]] = flat[part.begin + begin : part.begin + end]
        return found

    def _places(self, part: Part) -> list[tuple[int, int]]:
        """Returns the intervals of a part's parameters in it. At stage 3 these are their shards, otherwise what this rank owns."""
        if self._core().zero_optimization_stage() < 3:
            return [(begin, end) for _, begin, end in part.pieces]
        ends = list(itertools.accumulate(_core.shard_numel(self._params[name]) for name in part.names))
        return list(zip([0, *ends], ends))

    def states_of(self, param: torch.Tensor) -> dict[str, Any]:
        """Returns a model parameter's states: this rank's elements, flat unless it owns all of them."""
        for part in self.parts():
            place = next((piece for piece in part.pieces if self._params[piece[0]] is param), None)
            if place is not None:
                _, tensors, step = self._read(part)
                if not (tensors or step):
                    break
                states = {key: flat[place[1] : place[2]] for key, flat in tensors}
                return self._with_step({key: self._shaped(flat, param) for key, flat in states.items()}, step)
        raise KeyError(param)

    @staticmethod
    def _shaped(flat: torch.Tensor, param: torch.Tensor) -> torch.Tensor:
        return flat.view(param.shape) if flat.numel() == param.numel() else flat

    def of_part(self, part: Part) -> tuple[torch.Tensor, dict[str, Any]]:
        """Returns a part's flat master and its states; there are no states before the first step."""
        master, tensors, step = self._read(part)
        return master, self._with_step(dict(tensors), step) if tensors or step else {}

    def states_of_parts(self) -> list[tuple[torch.Tensor, dict[str, Any]]]:
        """Returns [(flat master, its states)] of the parts that were stepped."""
        read = [self.of_part(part) for part in self.parts()]
        return [(master, states) for master, states in read if states]

    def states_of_params(self) -> list[tuple[torch.Tensor, dict[str, Any]]]:
        """Returns [(parameter, its states in its shape)] of the parameters that were stepped."""
        found = []
        for part in self.parts():
            _, tensors, step = self._read(part)
            cut = {name: self._cut(part, flat) for name, flat in tensors}
            for index, (name, _, _) in enumerate(part.pieces if tensors or step else ()):
                states = {key: values[index] for key, values in cut.items()}
                found.append((self._params[name], self._with_step(states, step)))
        return found

    def _read(self, part: Part) -> tuple[torch.Tensor, list[tuple[str, torch.Tensor]], int]:
        master, tensors, step = _core.owned_part(self._core(), part.group, part.begin, part.end)
        return self._known(master), [(name, self._known(tensor)) for name, tensor in tensors], step

    def _known(self, tensor: torch.Tensor) -> torch.Tensor:
        key = tensor.data_ptr(), tensor.numel(), tensor.dtype
        return self._seen.setdefault(key, tensor) if tensor.numel() else tensor

    def _cut(self, part: Part, flat: torch.Tensor) -> list[torch.Tensor]:
        return [flat[begin:end].view(self._params[name].shape) for name, begin, end in part.pieces]

    def _with_step(self, states: Mapping[str, Any], step: int) -> dict[str, Any]:
        return {"step": torch.tensor(float(step)) if self._counts_in_tensors else step, **states}


class StateView(Mapping[torch.Tensor, dict[str, Any]]):
    """Shows an optimizer's `state`: {flat master or parameter: {name: tensor}}.

    It is read from the core on access. A model parameter finds its own states even if the keys are flat masters.
    """

    def __init__(
        self, read: Callable[[], list[tuple[torch.Tensor, dict[str, Any]]]], states_of: Callable[[torch.Tensor], dict[str, Any]]
    ) -> None:
        self._read = read  # function that returns [(tensor, states)]
        self._states_of = states_of  # function of a parameter

    def __getitem__(self, tensor: torch.Tensor) -> dict[str, Any]:
        for key, states in self._read():
            if key is tensor:
                return states
        return self._states_of(tensor)

    def __contains__(self, tensor: object) -> bool:
        try:
            return bool(self[cast(torch.Tensor, tensor)])
        except KeyError:
            return False

    def __iter__(self) -> Iterator[torch.Tensor]:
        return (key for key, _ in self._read())

    def __len__(self) -> int:
        return len(self._read())

    def items(self) -> Any:
        return self._read()

    def values(self) -> Any:
        return [states for _, states in self._read()]
