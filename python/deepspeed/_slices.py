"""Steps an optimizer whose class the core does not know on the core's flat slices.

From stage 1 on ZeRO partitions element by element, as DeepSpeed does with `zero_allow_untested_optimizer`. An update that needs whole
parameters (a norm, a matrix) is correct only at stage 0, at which slices hold whole parameters (_elementwise.py).
"""

from __future__ import annotations

import contextlib
import copy
import math
from typing import TYPE_CHECKING

import torch

from deepspeed._errors import NotSupportedError
from deepspeed.utils.logging import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Any

SCALAR = "scalar:"  # marks a state of one number, which is stored once for each element
SHAPED = "shaped:"  # marks part of a state of other shapes: "shaped:0:6x1,-:row" is the first one, for two parameters


class SliceStepper:
    """Steps slices by the client's optimizer. During a step a stand-in takes the parameters' place in its groups."""

    def __init__(self, client: torch.optim.Optimizer, dicts_of_groups: Callable[[int], dict[str, Any]]) -> None:
        self._client = client
        self._dict_of = dicts_of_groups  # function: index of the core's group -> the client's dict
        self.first_states = [_first_state(client, group) for group in client.param_groups]
        self._stand_ins: dict[int, list[torch.nn.Parameter]] = {}  # by slice: [parameter]
        self._places: dict[int, tuple[int, list[tuple[int, int]]]] = {}  # by slice: number of elements, and [(begin, end)] of its stand-ins
        self._cut: set[int] = set()  # slices that may cut parameters
        self._waiting: dict[int, tuple[list[tuple[str, torch.Tensor]], int]] = {}  # by slice: a loaded state for its first step
        self._group_of: dict[int, int] = {}  # by slice: index of the core's group
        self._params_by_rows: dict[int, torch.Tensor] = {}  # {address: parameter}

    def give_rows(self, params: Iterable[torch.Tensor]) -> None:
        """Makes the gradients of these parameters sparse from now on: only the rows that a batch used."""
        self._params_by_rows = {param.data_ptr(): param for param in params}

    def step(
        self,
        slice_id: int,
        group: int,
        master: torch.Tensor,
        gradient: torch.Tensor,
        gradient_scale: float,
        places: Sequence[tuple[int, int, Sequence[int]]] | None,
    ) -> None:
        stand_ins = self._stand_ins.get(slice_id)
        if places is None:  # element by element
            self._cut.add(slice_id)
            places = [(0, master.numel(), master.shape)]
        views = _views(master, places)
        is_new = stand_ins is None
        if stand_ins is None:
            stand_ins = self._stand_ins[slice_id] = [torch.nn.Parameter(view) for view in views]
            self._group_of[slice_id] = group
            self._places[slice_id] = master.numel(), [(begin, end) for begin, end, _ in places]
        gradient = gradient.to(master.dtype)
        if gradient_scale != 1.0:
            gradient = gradient * gradient_scale
        for stand_in, view, part in zip(stand_ins, views, _views(gradient, places)):
            stand_in.data = view
            stand_in.grad = part.to_sparse(1) if view.data_ptr() in self._params_by_rows else part
        own = self._dict_of(group)
        groups = self._client.param_groups
        if is_new:
            first = next(state for state, entry in zip(self.first_states, groups) if entry is own)
            for stand_in in stand_ins:
                self._client.state[stand_in].update({name: make(stand_in) for name, make in first.items()})
        if slice_id in self._waiting:
            self._give_state(slice_id, *self._waiting.pop(slice_id))
        whole = [entry["params"] for entry in groups]
        for entry in groups:
            entry["params"] = stand_ins if entry is own else []
        before = master.clone() if is_new else master
        try:
            with self._rows_in_params():
                type(self._client).step(self._client)
        finally:
            for entry, params in zip(groups, whole):
                entry["params"] = params
            for stand_in in stand_ins:
                stand_in.grad = None
        has_rate = "lr" not in self._client.defaults or own["lr"] != 0
        if is_new and has_rate and gradient.any() and torch.equal(before, master):
            logger.warning(
                f"{type(self._client).__name__}.step() changed nothing of its param_groups, whose gradients are not zero: an "
                "optimizer that steps others inside of it, which hold parameters themselves, trains at stage 0 in fp32 alone"
            )

    @contextlib.contextmanager
    def _rows_in_params(self) -> Iterator[None]:
        """Makes the gradients of the parameters sparse within the scope. Optimizers that the client's one contains read them there."""
        dense = [(param, param.grad) for param in self._params_by_rows.values() if param.grad is not None]
        for param, gradient in dense:
            param.grad = gradient.to_sparse(1)
        try:
            yield
        finally:
            for param, gradient in dense:
                param.grad = gradient

    def stand_ins(self) -> list[tuple[int, list[torch.nn.Parameter]]]:
        """Returns (index of the core's group, keys of the client's state) for each stepped slice."""
        return [(self._group_of[slice_id], stand_ins) for slice_id, stand_ins in self._stand_ins.items()]

    def state(self, slice_id: int) -> tuple[list[tuple[str, torch.Tensor]], int]:
        """Returns ([(name, tensor of the slice's size)], number of steps)."""
        if slice_id in self._waiting:
            return self._waiting[slice_id]
        stand_ins = self._stand_ins.get(slice_id)
        if stand_ins is None:
            return [], 0
        states = [self._client.state.get(stand_in, {}) for stand_in in stand_ins]
        step = next((int(state["step"]) for state in states if "step" in state), 0)
        names = list(dict.fromkeys(name for state in states for name in state if name != "step"))
        lost = [name for name in names if not all(_is_number_or_tensor(state.get(name, 0)) for state in states)]
        for name in lost:
            kinds = {type(state[name]).__qualname__ for state in states if state.get(name) is not None} - {"Tensor"}
            if kinds:
                logger.warning_once(
                    f"{type(self._client).__name__}: the state {name!r} is no number and no tensor but a {min(kinds)}, which is in no "
                    "checkpoint, so that a resumed run begins it anew: keep it as a tensor, or save it in client_state"
                )
        return [joined for name in names if name not in lost for joined in self._joined(name, slice_id, states)], step

    def load_state(self, slice_id: int, tensors: Sequence[tuple[str, torch.Tensor]], step: int) -> None:
        state = [(name, tensor.clone()) for name, tensor in tensors]
        if slice_id in self._stand_ins:
            self._give_state(slice_id, state, step)
        else:
            self._waiting[slice_id] = (state, step)

    def check_state(self, names: Sequence[str]) -> None:
        """Accepts any names: only its first step shows which ones the optimizer keeps."""

    def state_bytes(self) -> int:
        total = 0
        for stand_ins in self._stand_ins.values():
            for stand_in in stand_ins:
                for value in self._client.state.get(stand_in, {}).values():
                    total += value.nbytes if isinstance(value, torch.Tensor) else 0
        return total

    def _joined(self, name: str, slice_id: int, states: Sequence[Mapping[str, Any]]) -> list[tuple[str, torch.Tensor]]:
        """Returns [(name, state of the whole slice)], with zeros for parameters without it."""
        stand_ins, (numel, places) = self._stand_ins[slice_id], self._places[slice_id]
        parts: list[Any] = [state.get(name) for state in states]
        if not all(_is_as_parameter(part, stand_in, slice_id in self._cut) for part, stand_in in zip(parts, stand_ins)):
            return self._packed(name, slice_id, parts)
        is_elementwise = all(
            isinstance(part, torch.Tensor) and part.numel() == stand_in.numel() for part, stand_in in zip(parts, stand_ins)
        )
        like = parts[0] if is_elementwise else torch.empty((), dtype=torch.float32, device=stand_ins[0].device)
        joined = like.new_zeros(numel)
        for part, (begin, end) in zip(parts, places):
            joined[begin:end] = part.reshape(-1) if is_elementwise else float(part)
        return [(name if is_elementwise else SCALAR + name, joined)]

    def _packed(self, name: str, slice_id: int, parts: Sequence[Any]) -> list[tuple[str, torch.Tensor]]:
        """Packs a state of other shapes than the parameters' into tensors of the slice's size.

        It returns as many tensors as the state fills.
        """
        if slice_id in self._cut:
            raise NotSupportedError(
                f"the state {name!r} of {type(self._client).__name__} is not of one number an element, so that no checkpoint can hold "
                "it from zero_optimization.stage 1 on: train at stage 0"
            )
        numel, places = self._places[slice_id]
        tensors = [part if part is None else torch.as_tensor(part) for part in parts]
        shapes = ",".join("-" if tensor is None else "x".join(map(str, tensor.shape)) for tensor in tensors)
        values = torch.cat([tensor.reshape(-1) for tensor in tensors if tensor is not None])
        made: list[tuple[str, torch.Tensor]] = []
        for first in range(0, values.numel(), sum(end - begin for begin, end in places)):
            joined = values.new_zeros(numel)
            for begin, end in places:
                here = values[first : first + end - begin]
                joined[begin : begin + here.numel()] = here
                first += here.numel()
            made.append((f"{SHAPED}{len(made)}:{shapes}:{name}", joined))
        return made

    def _give_packed(self, slice_id: int, tensors: Sequence[tuple[str, torch.Tensor]]) -> None:
        """Unpacks what _packed() has made: the parts of a state in their order."""
        _, places = self._places[slice_id]
        whole: dict[tuple[str, str], list[torch.Tensor]] = {}
        for marked, tensor in sorted(tensors, key=lambda item: int(item[0].split(":")[1])):
            _, _, shapes, name = marked.split(":", 3)
            whole.setdefault((shapes, name), []).extend(tensor[begin:end] for begin, end in places)
        for (shapes, name), pieces in whole.items():
            values, begin = torch.cat(pieces), 0
            for stand_in, text in zip(self._stand_ins[slice_id], shapes.split(",")):
                if text != "-":
                    shape = [int(size) for size in text.split("x") if size]
                    self._client.state[stand_in][name] = values[begin : begin + math.prod(shape)].view(shape).clone()
                    begin += math.prod(shape)

    def _give_state(self, slice_id: int, tensors: Sequence[tuple[str, torch.Tensor]], step: int) -> None:
        self._give_packed(slice_id, [item for item in tensors if item[0].startswith(SHAPED)])
        tensors = [item for item in tensors if not item[0].startswith(SHAPED)]
        for stand_in, (begin, end) in zip(self._stand_ins[slice_id], self._places[slice_id][1]):
            state = self._client.state[stand_in]
            if step:
                state["step"] = torch.tensor(float(step))
            for name, tensor in tensors:
                part = tensor[begin:end]
                if name.startswith(SCALAR):
                    state[name[len(SCALAR) :]] = part[0].clone()
                else:
                    state[name] = part.view(stand_in.shape).clone()


def _first_state(client: torch.optim.Optimizer, group: Mapping[str, Any]) -> dict[str, Callable[[torch.Tensor], Any]]:
    """Removes the states that a constructor has made for a group's parameters, as Adagrad does.

    They are numbers, or tensors filled with one. Returns how to make each for a slice: {name: function of the stand-in}.
    """
    states = [client.state.pop(param) for param in group["params"] if param in client.state]
    makers: dict[str, Callable[[torch.Tensor], Any]] = {}
    for name, example in states[0].items() if states else ():
        if not isinstance(example, torch.Tensor):
            makers[name] = _copied(example)
        elif example.dim() == 0 and any(param.dim() for param in group["params"]):
            makers[name] = _cloned(example)
        else:
            number = next((state[name].reshape(-1)[0].item() for state in states if state[name].numel()), 0.0)
            makers[name] = _filled(number, example.dtype)
    return makers


def _copied(value: object) -> Callable[[torch.Tensor], Any]:
    return lambda _: copy.copy(value)


def _cloned(tensor: torch.Tensor) -> Callable[[torch.Tensor], Any]:
    return lambda _: tensor.clone()


def _filled(number: float, dtype: torch.dtype) -> Callable[[torch.Tensor], Any]:
    return lambda stand_in: torch.full_like(stand_in, number, dtype=dtype)


def take_states_of_steps(client: torch.optim.Optimizer) -> dict[torch.Tensor, dict[str, Any]]:
    """Removes and returns the states that earlier steps have made: {parameter: states}.

    Returns {} if each state holds only one number: then a constructor has made them.
    """
    params = [param for group in client.param_groups for param in group["params"] if param in client.state]
    numbers: dict[str, set[float]] = {}
    for param in params:
        for name, value in client.state[param].items():
            numbers.setdefault(name, set()).update(_extremes(value) if isinstance(value, torch.Tensor) else ())
    if all(len(found) < 2 for found in numbers.values()):
        return {}
    return {param: client.state.pop(param) for param in params}


def _extremes(tensor: torch.Tensor) -> tuple[float, ...]:
    return (tensor.min().item(), tensor.max().item()) if tensor.numel() else ()


def _views(flat: torch.Tensor, places: Sequence[tuple[int, int, Sequence[int]]]) -> list[torch.Tensor]:
    return [flat[begin:end].view(shape) for begin, end, shape in places]


def _is_as_parameter(part: object, stand_in: torch.Tensor, is_cut: bool) -> bool:
    """Returns whether a state is one number, or has one for each element of the parameter."""
    if not isinstance(part, torch.Tensor):
        return part is not None
    return part.dim() == 0 or part.shape == stand_in.shape or (is_cut and part.numel() in (1, stand_in.numel()))


def _is_number_or_tensor(value: object) -> bool:
    if isinstance(value, torch.Tensor):
        return True
    return isinstance(value, (int, float)) and not isinstance(value, bool)
