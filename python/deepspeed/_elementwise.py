"""Finds out whether a script's optimizer updates each element independently.

ZeRO needs that from stage 1 on, because a rank steps flat slices. Unknown classes are tried on the host: a copy without parameters steps
a small matrix, and another copy steps a flat piece of the same numbers. If the results differ, an update depends on other elements,
through norms, rows, columns or matrix products.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import itertools
import random
import sys
from typing import TYPE_CHECKING

import torch

from deepspeed._errors import ConfigError
from deepspeed.utils.logging import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

_ELEMENTWISE = {
    getattr(torch.optim, name)
    for name in "Adadelta Adagrad Adam AdamW Adamax ASGD NAdam RAdam RMSprop Rprop SGD".split()
    if hasattr(torch.optim, name)
}
_WHY = {"LBFGS": "evaluates the loss within its step", "SparseAdam": "takes sparse gradients, which stage 0 alone gives it"}

_STEPS = 8
# By number of dimensions. Small shapes come first: an optimizer that makes square matrices from a vector's length must not get a long
# vector.
_SHAPES: dict[int, Sequence[tuple[int, ...]]] = {
    1: [(480,), (17680,)],
    2: [(24, 20), (136, 130)],
    3: [(4, 10, 12), (8, 34, 65)],
    4: [(6, 5, 4, 4), (34, 13, 8, 5)],
}
_TOLERANCE = 1e-4  # relative to the largest change
_OF_TORCH = ("step", "state", "param_groups")  # attributes that a copy does not share


class _NotTried(Exception):
    """Tells why the optimizer cannot be tried out."""


def require_elementwise(
    client: torch.optim.Optimizer, stage: int, first_states: Sequence[Mapping[str, Callable[[torch.Tensor], Any]]]
) -> None:
    """Raises ConfigError unless the optimizer updates each element independently.

    Warns if that cannot be found out. first_states: for each group, {name: function that makes the state that a constructor has made for
    a parameter}.
    """
    kind = type(client)
    if kind in _ELEMENTWISE:
        return
    why = _WHY.get(kind.__name__) if kind.__module__.startswith("torch.optim") else None
    if why is None:
        try:
            why = _difference(client, first_states)
        except Exception as error:  # a script's class may raise anything
            logger.warning(
                f"optimizer of class {kind.__name__} at zero_optimization.stage {stage}: whether it updates each element by itself "
                f"could not be tried out ({type(error).__name__}: {error}). ZeRO steps flat slices of the parameters: an update that "
                "needs norms, rows or matrices of whole parameters is right at stage 0 alone"
            )
            return
    if why is not None:
        named = ' "optimizer": {"type": "Muon"} of the config trains at every stage;' if kind.__name__ == "Muon" else ""
        raise ConfigError(
            f"zero_optimization.stage: got {stage} with an optimizer of class {kind.__name__}, which {why}, expected 0: from stage 1 on "
            f"ranks step flat slices of the parameters;{named} set stage 0, or take an optimizer that updates each element by itself"
        )


def _difference(client: torch.optim.Optimizer, first_states: Sequence[Mapping[str, Callable[[torch.Tensor], Any]]]) -> str | None:
    """Returns how stepping a flat piece of a parameter differs from stepping the whole, or None."""
    with _untouched_surroundings():
        for index in _different_groups(client.param_groups):
            most_dims = max((param.dim() for param in client.param_groups[index]["params"]), default=2)
            for shape in _SHAPES[min(max(most_dims, 1), 4)]:
                trained = _Trial(client, index, first_states[index], shape)
                whole = trained.step_whole(seed=1)
                if not torch.equal(whole, trained.step_whole(seed=2)):
                    raise _NotTried("its steps draw random numbers")
                try:
                    piece = trained.step_piece()
                except Exception:  # the whole parameter has been stepped already
                    return "cannot step a flat piece of a parameter"
                if not trained.is_same(piece, whole):
                    return "updates a flat piece of a parameter otherwise than the whole"
    return None


class _Trial:
    """Steps copies of an optimizer on a parameter of one shape. Values and gradients grow towards the later rows."""

    def __init__(
        self, client: torch.optim.Optimizer, index: int, first_state: Mapping[str, Callable[[torch.Tensor], Any]], shape: tuple[int, ...]
    ) -> None:
        numbers = torch.Generator().manual_seed(7)
        self._client, self._index, self._first_state = client, index, first_state
        slope = torch.linspace(0.1, 2.0, shape[0]).view(-1, *(1 for _ in shape[1:]))
        self._start = torch.randn(shape, generator=numbers) * slope
        sizes = itertools.cycle([1.0, 30.0, 0.02])  # some of the steps exceed an optimizer's threshold
        self._gradients = [torch.randn(shape, generator=numbers) * slope.square() * next(sizes) for _ in range(_STEPS)]
        self._length = int(0.6 * self._start.numel()) + 1  # ends within a row

    def step_whole(self, seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        random.seed(seed)
        return self._trained(lambda values: values).reshape(-1)

    def step_piece(self) -> torch.Tensor:
        torch.manual_seed(1)
        random.seed(1)
        return self._trained(lambda values: values.reshape(-1)[: self._length])

    def is_same(self, piece: torch.Tensor, whole: torch.Tensor) -> bool:
        start = self._start.reshape(-1)[: self._length]
        change = (whole[: self._length] - start).abs().max()
        return bool((piece - whole[: self._length]).abs().max() <= _TOLERANCE * change)

    def _trained(self, part_of: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        param = torch.nn.Parameter(part_of(self._start).clone())
        optimizer = _copy_without_parameters(self._client)
        for number, group in enumerate(optimizer.param_groups):
            group["params"] = [param] if number == self._index else []
        if self._first_state:
            optimizer.state[param].update({name: make(param) for name, make in self._first_state.items()})
        with torch.no_grad():
            for gradient in self._gradients:
                param.grad = part_of(gradient).clone()
                type(self._client).step(optimizer)
        result = param.detach()
        if not torch.isfinite(result).all():
            raise _NotTried("its steps gave numbers that are not finite")
        if torch.equal(result, part_of(self._start)):
            raise _NotTried("its steps changed nothing")
        return result


def _copy_without_parameters(client: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Returns an optimizer of the same class and options, with empty groups, on the host."""
    made = object.__new__(type(client))
    memo = {id(param): param for group in client.param_groups for param in group["params"]}
    memo[id(client)] = made
    for name, value in vars(client).items():
        if name in _OF_TORCH:
            continue
        is_hooks = name.startswith("_optimizer_") and name.endswith("_hooks")
        made.__dict__[name] = type(value)() if is_hooks else copy.deepcopy(value, memo)
    made.state = collections.defaultdict(dict)
    made.param_groups = [_options(group, memo) for group in client.param_groups]
    return made


def _options(group: Mapping[str, Any], memo: dict[int, Any]) -> dict[str, Any]:
    options = {key: copy.deepcopy(value, memo) for key, value in group.items() if key != "params"}
    rate = options.get("lr")
    if isinstance(rate, torch.Tensor):
        options["lr"] = torch.full_like(rate, 0.01, device="cpu")
    elif isinstance(rate, (int, float)):
        options["lr"] = 0.01  # a schedule may begin at 0
    if options.get("capturable"):
        options["capturable"] = False  # it works only on devices
    return {**options, "params": []}


def _different_groups(groups: Sequence[Mapping[str, Any]]) -> Iterator[int]:
    """Yields the index of one group of each kind. Groups that differ only in numbers, such as rates, are of one kind."""
    seen = set()
    for number, group in enumerate(groups):
        kind: list[object] = [
            (key, _kind_of(value)) for key, value in group.items() if key not in ("params", "lr", "initial_lr", "name", "param_names")
        ]
        kind.append(max((param.dim() for param in group["params"]), default=0))
        if group["params"] and repr(kind) not in seen:
            seen.add(repr(kind))
            yield number


def _kind_of(value: object) -> object:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value != 0 if is_number else value if isinstance(value, (bool, str)) else type(value)


@contextlib.contextmanager
def _untouched_surroundings() -> Iterator[None]:
    """Restores the random states at the end of the scope, in which nothing is compiled."""
    states = random.getstate()
    numpy = sys.modules.get("numpy")
    of_numpy = numpy.random.get_state() if numpy is not None else None
    eager = torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else contextlib.nullcontext()
    try:
        with torch.random.fork_rng(devices=[]), eager:
            yield
    finally:
        random.setstate(states)
        if numpy is not None:
            numpy.random.set_state(of_numpy)
