"""Moves inputs of checkpointed layers to the host between forward and backward.

It works with torch's non-reentrant checkpointing. Layers of Transformers mark their inputs themselves; other code calls mark() before it
checkpoints.
"""

from __future__ import annotations

import collections
import importlib.util
import threading
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from deepspeed.accelerator import get_accelerator
from deepspeed.runtime.activation_checkpointing.host_copies import HostBuffers, HostCopy, copies_beyond, is_dense_activation

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from typing_extensions import Self


@dataclass
class CheckpointActivationOffloadStats:
    """Counts tensors and their bytes."""

    saved_tensors_seen: int = 0
    marked_tensors: int = 0
    offloaded_tensors: int = 0
    restored_tensors: int = 0
    skipped_marked_tensors: int = 0
    kept_last_tensors: int = 0
    offloaded_bytes: int = 0
    restored_bytes: int = 0


class CheckpointHiddenStatesOffload(torch.autograd.graph.saved_tensors_hooks):
    """Copies marked tensors to the host in forward, and back when backward reads them.

    It surrounds forward and backward. keep_last_count: this many of the latest tensors stay on the device, since backward begins with
    them. max_fwd_stash_count: this many stay there while they are copied. min_offload_bytes: smaller tensors stay. use_streams: copies
    run beside the computation.
    """

    min_offload_bytes: int
    max_fwd_stash_count: int
    max_cpu_buffer_pool_count: int
    keep_last_count: int

    def __init__(
        self,
        use_pin_memory: bool = True,
        use_streams: bool = True,
        min_offload_bytes: int = 1024,
        max_fwd_stash_count: int = 2,
        max_cpu_buffer_pool_count: int = 64,
        keep_last_count: int = 1,
    ) -> None:
        limits = dict(
            min_offload_bytes=min_offload_bytes,
            max_fwd_stash_count=max_fwd_stash_count,
            max_cpu_buffer_pool_count=max_cpu_buffer_pool_count,
            keep_last_count=keep_last_count,
        )
        for name, value in limits.items():
            if value < 0:
                raise ValueError(f"{name} must be >= 0, got {value}")
            setattr(self, name, value)
        self.use_pin_memory = use_pin_memory
        self._buffers = HostBuffers(max_cpu_buffer_pool_count, use_pin_memory)
        make_stream = get_accelerator().Stream
        self._stream = make_stream() if use_streams and make_stream is not None else None
        self.use_streams = self._stream is not None
        self.reset()
        super().__init__(self._pack, self._unpack)

    def reset(self) -> None:
        """Clears all counts, marks and activations. A backward that needs one of them is an error then."""
        self.stats = CheckpointActivationOffloadStats()
        self._forget()

    def mark(self, tensor: torch.Tensor) -> None:
        """Marks a tensor that the next checkpointed layer saves as its input."""
        self._marks[id(tensor)] += 1
        self.stats.marked_tensors += 1

    def _forget(self) -> None:
        self._marks: collections.Counter[int] = collections.Counter()  # ids of tensors that live until they are saved
        for copy in list(getattr(self, "_copies", ())):
            self._lose(copy)
        self._copies: weakref.WeakSet[HostCopy] = weakref.WeakSet()  # those of this pass; the graph owns them
        self._latest: collections.deque[HostCopy] = collections.deque()  # of these, the ones that are not copied
        self._stashed: collections.deque[HostCopy] = collections.deque()  # of these, the ones that are copied but not dropped
        self._buffers.wait()

    def _lose(self, copy: HostCopy) -> None:
        if copy.buffer is not None:
            if self._stream is not None:
                self._stream.synchronize()
            self._buffers.give(copy.buffer)
        copy.tensor, copy.buffer, copy.is_lost = None, None, True

    def _take_mark(self, tensor: torch.Tensor) -> bool:
        if self._marks[id(tensor)] == 0:
            del self._marks[id(tensor)]
            return False
        self._marks[id(tensor)] -= 1
        return True

    def _pack(self, tensor: torch.Tensor) -> torch.Tensor | HostCopy:
        self.stats.saved_tensors_seen += 1
        if not self._take_mark(tensor):
            return tensor
        if not is_dense_activation(tensor, self.min_offload_bytes):
            self.stats.skipped_marked_tensors += 1
            return tensor
        copy = HostCopy(tensor)
        self._copies.add(copy)
        self._latest.append(copy)
        for older in copies_beyond(self._latest, self.keep_last_count):
            self._offload(older)
        return copy

    def _offload(self, copy: HostCopy) -> None:
        copy.start(self._buffers, self._stream)
        self.stats.offloaded_tensors += 1
        assert copy.buffer is not None
        self.stats.offloaded_bytes += copy.buffer.nbytes
        self._stashed.append(copy)
        for older in copies_beyond(self._stashed, self.max_fwd_stash_count if self.use_streams else 0):
            older.drop()

    def _unpack(self, packed: torch.Tensor | HostCopy) -> torch.Tensor:
        if not isinstance(packed, HostCopy):
            return packed
        if packed.is_lost:
            raise RuntimeError("an offloaded activation is gone: run backward inside of the scope that its forward ran in")
        if packed.buffer is not None:
            packed.restore(self._buffers, self._stream)
            if packed in self._stashed:
                self._stashed.remove(packed)
            self.stats.restored_tensors += 1
            assert packed.tensor is not None
            self.stats.restored_bytes += packed.tensor.nbytes
        elif packed in self._latest:
            self._latest.remove(packed)
            self.stats.kept_last_tensors += 1
        assert packed.tensor is not None
        return packed.tensor

    def _buffer_key(self, tensor: torch.Tensor) -> tuple[tuple[int, ...], torch.dtype]:
        return self._buffers.key(tensor)

    def _empty_cpu_like(self, tensor: torch.Tensor) -> tuple[torch.Tensor, tuple[tuple[int, ...], torch.dtype]]:
        return self._buffers.take(tensor), self._buffers.key(tensor)

    def __enter__(self) -> Self:  # type: ignore[override]  # that of torch returns nothing
        if self in _open():
            raise RuntimeError("CheckpointHiddenStatesOffload is not re-entrant; use another instance for a scope inside of this one")
        self.reset()
        _marker.begin()
        _open().append(self)
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        _open().remove(self)
        _marker.end()
        self._forget()


def get_checkpoint_hidden_states_offloading_ctx_manager(**options: Any) -> CheckpointHiddenStatesOffload:
    """Returns a scope that offloads the inputs of checkpointed layers."""
    return CheckpointHiddenStatesOffload(**options)


_of_thread = threading.local()


def _open() -> list[CheckpointHiddenStatesOffload]:
    """Returns the open scopes of this thread, the outermost first."""
    if not hasattr(_of_thread, "scopes"):
        _of_thread.scopes = []
    opened: list[CheckpointHiddenStatesOffload] = _of_thread.scopes
    return opened


class _Marker:
    """Lets Transformers' checkpointed layers mark their first argument while scopes are open. It is their hidden states."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._num_scopes = 0
        self._layer = None
        self._own_call = None  # the class's own __call__; None if it inherits one

    def begin(self) -> None:
        with self._lock:
            self._num_scopes += 1
            if self._num_scopes == 1 and importlib.util.find_spec("transformers") is not None:
                self._layer = _checkpointed_layer()
                if self._layer is not None:
                    self._own_call = self._layer.__dict__.get("__call__")
                    self._layer.__call__ = _marking(self._layer.__call__)

    def end(self) -> None:
        with self._lock:
            self._num_scopes -= 1
            if self._num_scopes > 0 or self._layer is None:
                return
            if self._own_call is None:
                del self._layer.__call__
            else:
                self._layer.__call__ = self._own_call
            self._layer = None


def _checkpointed_layer() -> Any:
    import transformers

    return getattr(transformers, "GradientCheckpointingLayer", None)  # Transformers has it since 4.52


def _marking(call: Callable[..., Any]) -> Callable[..., Any]:
    def marked_call(layer: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        is_checkpointed = layer.training and getattr(layer, "gradient_checkpointing", False) and torch.is_grad_enabled()
        if not (is_checkpointed and _open() and args and isinstance(args[0], torch.Tensor)):
            return call(layer, *args, **kwargs)
        scope = _open()[-1]
        scope.mark(args[0])
        try:
            return call(layer, *args, **kwargs)
        finally:
            scope._take_mark(args[0])  # if nothing was saved; another tensor may get this id later

    return marked_call


_marker = _Marker()
