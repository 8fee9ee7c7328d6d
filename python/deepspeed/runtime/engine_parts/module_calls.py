"""Handles calls of modules at stage 3: access windows, and the parameters of running modules.

Calls that bypass the engine get a window of their own.
"""

from __future__ import annotations

import functools
import threading
import weakref
from typing import TYPE_CHECKING

import torch
from torch.nn.modules.module import register_module_module_registration_hook

from deepspeed import _core
from deepspeed.runtime.backward.derivative_window import open_in_derivative
from deepspeed.runtime.zero.parameter_offload import ensure_zero_ordered_dict, give_plain_dict_back
from deepspeed.runtime.zero.partition_parameters import external_parameters, note_external_parameter

if TYPE_CHECKING:
    from collections.abc import Callable, ItemsView, Sequence
    from typing import Any

    from torch.utils.hooks import RemovableHandle


class ModuleCalls:
    """Makes a module's own parameters whole while it runs, with an access window around the outermost call.

    Operators gather what they use, whichever module owns it. A module may also read its own parameters without operators, as kernels that
    take addresses do. It may also read another module's parameters. They stay whole until it returns; parameters that it returns stay
    whole while its caller runs, or until backward ends if a recomputed function has called it. Inside the engine's forward the engine
    provides the window. Under autocast nothing is gathered for the module: operators gather what they cast to.
    """

    def __init__(self, core: _core.TrainingEngine | None) -> None:
        self._core = weakref.ref(core) if core is not None else lambda: None
        self._of_thread = _Calls()
        self._reader = self._make_reader()
        self._watched: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._until_backward_ends: list[_core.ModuleUse] = []  # parameters in use
        self._root: weakref.ref[torch.nn.Module] | None = None  # the module whose submodules are watched
        self._has_grown = False
        self.forward_hooks: list[RemovableHandle] = []  # handles of the hooks on modules
        self.backward_hooks: list[RemovableHandle] = []  # stays empty: the core follows backward at the operators that use parameters

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies nothing: the hooks of a copied model belong to no engine."""
        return ModuleCalls, (None,)

    def watch(self, module: torch.nn.Module) -> None:
        self._root = weakref.ref(module)
        _tell_where_modules_grow(self)
        self._watch_parts(module)

    def _watch_parts(self, module: torch.nn.Module) -> None:
        self._has_grown = False
        for part in module.modules():
            if part in self._watched:
                continue
            external_parameters(part)
            part.__dict__["ds_external_parameters"] = functools.partial(_external_items, part)
            ensure_zero_ordered_dict(part, self._reader)
            self._watched.add(part)
            self.forward_hooks.append(part.register_forward_pre_hook(self._enter))
            self.forward_hooks.append(part.register_forward_hook(self._leave, always_call=True))

    def stop(self) -> None:
        for handle in self.forward_hooks:
            handle.remove()
        self.forward_hooks.clear()
        self.end_backward()
        for part in list(self._watched):
            give_plain_dict_back(part)
            part.__dict__.pop("ds_external_parameters", None)
        self._watched.clear()
        _told.discard(self)

    @property
    def module(self) -> torch.nn.Module | None:
        """The engine's module; None if none is watched."""
        return self._root() if self._root is not None else None

    def _register_deepspeed_module(self, module: torch.nn.Module, count: int | None = None) -> int:
        """Restores hooks that a script has removed, as TRL does around generate(). Returns how many submodules it has gone through."""
        for part in module.modules():
            self._watched.discard(part)
        self._watch_parts(module)
        return (count or 0) + sum(1 for _ in module.modules())

    _register_hooks_recursively = _register_deepspeed_module

    def _note_part(self, module: torch.nn.Module) -> None:
        self._has_grown = self._has_grown or module in self._watched

    def end_backward(self) -> None:
        """Releases what recomputed functions have used."""
        while self._until_backward_ends:
            self._until_backward_ends.pop().close()

    def _make_reader(self) -> Callable[[torch.nn.Module, torch.Tensor], None]:
        """Returns the function that modules' dicts call when a parameter is read. It holds no reference to the engine."""
        of_thread = self._of_thread

        def read(module: torch.nn.Module, param: torch.Tensor) -> None:
            if not of_thread.running or of_thread.running[-1][0] is module:
                return
            running, uses = of_thread.running[-1]
            if not _core.is_partitioned(param) or torch.is_autocast_enabled(param.device.type):
                return
            note_external_parameter(running, param)
            uses.append(_use([param]))

        return read

    def begin(self) -> int:
        """Begins a forward of the engine, which has its own window. Returns the argument for end()."""
        if self._until_backward_ends:  # a script's own backward
            self.end_backward()
        root = self.module if self._has_grown else None
        if root is not None:  # scripts wrap layers, for example in adapters
            self._watch_parts(root)
        calls = self._of_thread
        calls.depth += 1
        return len(calls.running)

    def end(self, mark: int) -> None:
        """Ends the forward, and modules in it that an interrupt has left open."""
        calls = self._of_thread
        while len(calls.running) > mark:
            calls.pop()
        calls.depth -= 1

    def _enter(self, module: torch.nn.Module, _: object) -> None:
        calls = self._of_thread
        if calls.depth == 0:
            core = self._core()
            calls.window = _core.Access(core) if core is not None else None
        calls.depth += 1
        calls.running.append((module, []))
        own = [param for param in module._parameters.values() if param is not None]
        if own and not torch.is_autocast_enabled(own[0].device.type):
            calls.running[-1][1].append(_use(own))

    def _leave(self, module: torch.nn.Module, _: object, output: object) -> None:
        calls = self._of_thread
        if not calls.running or calls.running[-1][0] is not module:  # an earlier hook has failed before _enter()
            return
        returned = _parameters_in(output)
        if returned and len(calls.running) > 1:
            self._hand_up(module, returned, *calls.running[-2])
        elif returned and torch._C._current_graph_task_id() != -1:
            self._until_backward_ends.append(_use(returned))
        calls.pop()
        if calls.depth == 0 and calls.window is not None:
            window, calls.window = calls.window, None
            window.close()
            open_in_derivative(self._core(), output)

    def _hand_up(
        self, module: torch.nn.Module, returned: Sequence[torch.Tensor], caller: torch.nn.Module, uses: list[_core.ModuleUse]
    ) -> None:
        """Keeps parameters that the module returns whole until its caller ends."""
        for param in returned:
            external_parameters(module).pop(id(param), None)
            note_external_parameter(caller, param)
        if not torch.is_autocast_enabled(returned[0].device.type):
            uses.append(_use(returned))


def _external_items(module: torch.nn.Module) -> ItemsView[int, torch.Tensor]:
    """Returns (id, parameter) pairs, for ds_external_parameters() of a module at stage 3."""
    return external_parameters(module).items()


def _use(params: Sequence[torch.Tensor]) -> _core.ModuleUse:
    """Makes parameters whole, in memory of their own. This also holds inside a transform of torch.func, which would wrap the memory."""
    with torch._C._DisableFuncTorch():
        return _core.ModuleUse(params)


_told: weakref.WeakSet[ModuleCalls] = weakref.WeakSet()  # the ModuleCalls to notify when a module gets a submodule


def _tell_where_modules_grow(calls: ModuleCalls) -> None:
    _watch_growth()
    _told.add(calls)


@functools.lru_cache(maxsize=1)
def _watch_growth() -> None:
    """Registers the hook once for the process. Torch iterates over its hooks while they run, so none of them may be removed then."""

    def note(module: torch.nn.Module, name: str, part: torch.nn.Module | None) -> None:
        if part is not None:
            for calls in list(_told):
                calls._note_part(module)

    register_module_module_registration_hook(note)


def _parameters_in(output: Any) -> list[torch.Tensor]:
    """Returns the partitioned parameters that a module returns unchanged. They may be alone, or in a list, tuple or dict."""
    if isinstance(output, torch.Tensor):
        output = (output,)
    elif isinstance(output, dict):
        output = output.values()
    elif not isinstance(output, (tuple, list)):
        return []
    return [value for value in output if isinstance(value, torch.nn.Parameter) and _core.is_partitioned(value)]


class _Calls(threading.local):
    """Lists the running modules of a thread and their parameters in use, the outermost first."""

    def __init__(self) -> None:
        self.depth = 0
        self.window: _core.Access | None = None
        self.running: list[tuple[torch.nn.Module, list[_core.ModuleUse]]] = []  # (module, uses)

    def pop(self) -> None:
        _, uses = self.running.pop()
        self.depth -= 1
        for use in uses:
            use.close()
