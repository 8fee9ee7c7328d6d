"""Calls of modules at stage 3: the windows of those that go past the engine, and the parameters of each while it runs."""
import threading
import weakref

import torch

from deepspeed import _core


class ModuleCalls:
    """Makes a module's own parameters whole while it runs, and opens an access window around the outermost call.

    Operators gather what they use, wherever it is from; a module may also read its own parameters past them, as kernels do
    that take addresses. Inside of the engine's forward the window is the engine's. Under autocast operators gather what they
    cast to, and nothing is gathered for the module.
    """

    def __init__(self, core):
        self._core = weakref.ref(core)
        self._of_thread = _Calls()
        self.forward_hooks = []  # handles of the hooks on modules
        self.backward_hooks = []  # none: the core sees backward where operators use parameters

    def watch(self, module):
        for part in module.modules():
            self.forward_hooks.append(part.register_forward_pre_hook(self._enter))
            self.forward_hooks.append(part.register_forward_hook(self._leave, always_call=True))

    def stop(self):
        for handle in self.forward_hooks:
            handle.remove()
        self.forward_hooks.clear()

    def begin(self):
        """Begins a forward of the engine, which has a window of its own; returns what end() wants."""
        calls = self._of_thread
        calls.depth += 1
        return len(calls.running)

    def end(self, mark):
        """Ends it, and the modules in it that an interrupt has left open."""
        calls = self._of_thread
        while len(calls.running) > mark:
            calls.pop()
        calls.depth -= 1

    def _enter(self, module, _):
        calls = self._of_thread
        if calls.depth == 0:
            core = self._core()
            calls.window = _core.Access(core) if core is not None else None
        calls.depth += 1
        calls.running.append((module, None))
        own = [param for param in module._parameters.values() if param is not None]
        if own and not torch.is_autocast_enabled(own[0].device.type):
            calls.running[-1] = module, _core.ModuleUse(own)

    def _leave(self, module, *_):
        calls = self._of_thread
        if not calls.running or calls.running[-1][0] is not module:  # an earlier hook has failed before _enter()
            return
        calls.pop()
        if calls.depth == 0 and calls.window is not None:
            window, calls.window = calls.window, None
            window.close()


class _Calls(threading.local):
    """Is what runs on a thread: modules and uses of their parameters, the outermost first."""

    def __init__(self):
        self.depth = 0
        self.window = None
        self.running = []  # (module, use)

    def pop(self):
        _, use = self.running.pop()
        self.depth -= 1
        if use is not None:
            use.close()
