"""What a backward that fails in its middle does to the gradients that are summed up for the next update."""
import contextlib

from deepspeed._errors import UsageError


class GradientWindow:
    """The backwards since the last update. One that fails leaves a part of its gradients, which no update may use."""

    def __init__(self, core):
        self._core = core
        self._backwards = 0
        self._is_broken = False

    @contextlib.contextmanager
    def backward(self):
        """Is the scope of a backward; before it, the window is emptied of one that failed where nothing else was in it."""
        if self._is_broken and not self._backwards:
            self.forget()
        self.check("backward")
        try:
            yield
        except UsageError:  # the backward was refused before it began
            raise
        except BaseException:
            self._is_broken = True
            raise
        self._backwards += 1

    def check(self, call):
        if self._is_broken:
            raise UsageError(
                f"{call}() after a backward() that failed: a part of its gradients is among those of the accumulation window; "
                "call engine.zero_grad() on all ranks, which drops the gradients of the window, and go on with a forward"
            )

    def forget(self):
        """Drops the gradients of the window; all ranks together."""
        self._core.zero_grad()
        self.begin()

    def begin(self):
        """Is called where the window is empty again."""
        self._backwards, self._is_broken = 0, False
