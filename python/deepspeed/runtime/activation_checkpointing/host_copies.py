"""Keeps activations on the host until they are needed. Copies run beside the computation, into buffers that are used again."""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING

import torch

from deepspeed.accelerator import get_accelerator

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Iterator
    from typing import Any


class HostBuffers:
    """Keeps host tensors for later copies of the same shape and dtype, up to a limit."""

    def __init__(self, limit: int, use_pin_memory: bool) -> None:
        self._limit = limit
        self._use_pin_memory = use_pin_memory
        self._free: dict[tuple[tuple[int, ...], torch.dtype], list[torch.Tensor]] = {}
        self._returning: list[tuple[torch.Tensor, Any]] = []  # (buffer, event after its last reader)

    def __len__(self) -> int:
        return sum(map(len, self._free.values()))

    @staticmethod
    def key(tensor: torch.Tensor) -> tuple[tuple[int, ...], torch.dtype]:
        """Returns a value that is equal for tensors whose copies fit the same buffers. Strides do not matter, since buffers are dense."""
        return tuple(tensor.shape), tensor.dtype

    def take(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns a dense host tensor of the tensor's shape and dtype."""
        self._collect(wait=False)
        free = self._free.get(self.key(tensor))
        if free:
            return free.pop()
        made = torch.empty(tensor.shape, dtype=tensor.dtype)
        return get_accelerator().pin_memory(made, make_copy=False) if self._use_pin_memory else made

    def give(self, buffer: torch.Tensor, event: Any = None) -> None:
        """Takes a buffer back, after the event if there is one."""
        if event is not None:
            self._returning.append((buffer, event))
        elif len(self) < self._limit:
            self._free.setdefault(self.key(buffer), []).append(buffer)

    def _collect(self, wait: bool) -> None:
        returning, self._returning = self._returning, []
        for buffer, event in returning:
            if wait:
                event.synchronize()
            self.give(buffer, None if wait or event.query() else event)

    def wait(self) -> None:
        """Waits for the copies that still read buffers."""
        self._collect(wait=True)


class HostCopy:
    """Holds one activation: on its device, then on the host, and back when read."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor: torch.Tensor | None = tensor  # on the device; None while only the host has it
        self.buffer: torch.Tensor | None = None
        self.is_lost = False
        self._event: Any = None  # after the copy to the host
        self._device, self._size, self._stride = tensor.device, tensor.size(), tensor.stride()

    def start(self, buffers: HostBuffers, stream: Any) -> None:
        """Copies the tensor to the host, on the stream if there is one. Its memory on the device stays until drop()."""
        accelerator = get_accelerator()
        assert self.tensor is not None
        self.buffer = buffers.take(self.tensor)
        if stream is not None:
            stream.wait_stream(accelerator.current_stream())
        with contextlib.nullcontext() if stream is None else accelerator.stream(stream):
            self.buffer.copy_(self.tensor.detach(), non_blocking=stream is not None)
        if stream is not None:
            self.tensor.record_stream(stream)
            self._event = stream.record_event()

    def drop(self) -> None:
        self.tensor = None

    def restore(self, buffers: HostBuffers, stream: Any) -> None:
        """Restores the tensor on its device, with its strides, and returns the buffer."""
        accelerator = get_accelerator()
        assert self.buffer is not None
        if self.tensor is not None:  # copied, but not dropped yet
            buffers.give(self.buffer, self._event)
            self.buffer = None
            return
        with contextlib.nullcontext() if stream is None else accelerator.stream(stream):
            tensor = torch.empty_strided(self._size, self._stride, dtype=self.buffer.dtype, device=self._device)
            tensor.copy_(self.buffer, non_blocking=stream is not None)
        event = None
        if stream is not None:
            event = stream.record_event()
            accelerator.current_stream().wait_event(event)
            tensor.record_stream(accelerator.current_stream())
        buffers.give(self.buffer, event)
        self.tensor, self.buffer = tensor, None


def is_dense_activation(tensor: torch.Tensor, min_bytes: int) -> bool:
    """Returns whether copying the tensor to the host frees device memory. Copying parameters, buffers and expanded views does not."""
    accelerator = get_accelerator()
    kinds = (torch.nn.Parameter, torch.nn.Buffer) if hasattr(torch.nn, "Buffer") else (torch.nn.Parameter,)
    is_of_model = isinstance(tensor, kinds)
    on_device = not accelerator.is_synchronized_device() and accelerator.on_accelerator(tensor)
    overlaps = any(stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.stride()))
    return on_device and not is_of_model and not overlaps and tensor.nbytes >= min_bytes


def copies_beyond(copies: deque[HostCopy], count: int) -> Iterator[HostCopy]:
    """Removes all but the last `count` from the front of a deque, and yields them."""
    for _ in itertools.repeat(None, max(len(copies) - count, 0)):
        yield copies.popleft()
