"""Calls of a module, or of one inside of it, that do not go through the engine: model.generate(), evaluation of the bare model."""
import weakref

from deepspeed import _core


class BareCalls:
    """Opens an access window of stage 3 around the outermost call; inside of the engine's forward it only counts."""

    def __init__(self, core):
        self._core = weakref.ref(core)
        self.depth = 0
        self._window = None
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

    def _enter(self, *_):
        if self.depth == 0:
            core = self._core()
            self._window = _core.Access(core) if core is not None else None
        self.depth += 1

    def _leave(self, *_):
        self.depth -= 1
        if self.depth == 0 and self._window is not None:
            window, self._window = self._window, None
            window.close()
