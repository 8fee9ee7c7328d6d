"""Answers what scripts ask about a process's device, under DeepSpeed's names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable, Iterable, MutableMapping
    from types import ModuleType
    from typing import Any

    from deepspeed.ops.op_builder import OpBuilder


class DeepSpeedAccelerator:
    """Answers what CPUs and GPUs answer in the same way. `_name` is the device's type."""

    _name = "cpu"
    _communication_backend_name = "gloo"
    _compile_backend = "inductor"

    def device_name(self, device_index: int | None = None) -> str:
        return self._name if device_index is None else f"{self._name}:{device_index}"

    def is_synchronized_device(self) -> bool:
        return self._name == "cpu"

    def use_host_timers(self) -> bool:
        return self.is_synchronized_device()

    def resolves_data_dependency(self) -> bool:
        return self.is_synchronized_device()

    def handles_memory_backpressure(self) -> bool:
        return self.is_synchronized_device()

    def communication_backend_name(self) -> str:
        return self._communication_backend_name

    def communication_backend_version(self) -> str:
        return torch.__version__

    def is_triton_supported(self) -> bool:
        return False

    def prefer_triton_grouped_mm(self) -> bool:
        return False

    def is_fp64_supported(self) -> bool:
        return True

    def supported_dtypes(self) -> list[torch.dtype]:
        return [torch.float, torch.half, torch.bfloat16]

    def amp(self) -> ModuleType:
        return torch.amp

    def lazy_call(self, callback: Callable[[], object]) -> None:
        callback()

    if TYPE_CHECKING:  # defined by the subclasses

        @property
        def Stream(self) -> Any: ...
        @property
        def Event(self) -> Any: ...
        def available_memory(self, device_index: int | None = None) -> int: ...
        def build_extension(self) -> type: ...
        def capture_to_graph(self, graph: Any, pool: Any = None, stream: Any = None) -> contextlib.AbstractContextManager[Any]: ...
        def create_graph(self) -> Any: ...
        def current_device(self) -> Any: ...
        def current_device_name(self) -> str: ...
        def current_stream(self, device_index: int | None = None) -> Any: ...
        def default_generator(self, device_index: int) -> torch.Generator: ...
        def default_stream(self, device_index: int | None = None) -> Any: ...
        def device(self, device_index: int | None = None) -> Any: ...
        def device_count(self) -> int: ...
        def empty_cache(self) -> None: ...
        def get_rng_state(self, device_index: int | None = None) -> torch.Tensor: ...
        def initial_seed(self) -> int: ...
        def is_available(self) -> bool: ...
        def is_bf16_supported(self) -> bool: ...
        def is_fp16_supported(self) -> bool: ...
        def manual_seed(self, seed: int) -> Any: ...
        def manual_seed_all(self, seed: int) -> Any: ...
        def max_memory_allocated(self, device_index: int | None = None) -> int: ...
        def max_memory_cached(self, device_index: int | None = None) -> int: ...
        def max_memory_reserved(self, device_index: int | None = None) -> int: ...
        def memory_allocated(self, device_index: int | None = None) -> int: ...
        def memory_cached(self, device_index: int | None = None) -> int: ...
        def memory_reserved(self, device_index: int | None = None) -> int: ...
        def memory_stats(self, device_index: int | None = None) -> dict[str, Any]: ...
        def random(self) -> ModuleType: ...
        def range_pop(self) -> Any: ...
        def range_push(self, msg: str) -> Any: ...
        def replay_graph(self, graph: Any) -> None: ...
        def reset_max_memory_allocated(self, device_index: int | None = None) -> None: ...
        def reset_max_memory_cached(self, device_index: int | None = None) -> None: ...
        def reset_peak_memory_stats(self, device_index: int | None = None) -> None: ...
        def set_device(self, device_index: int) -> None: ...
        def set_rng_state(self, new_state: torch.Tensor, device_index: int | None = None) -> None: ...
        def stream(self, stream: Any) -> contextlib.AbstractContextManager[Any]: ...
        def synchronize(self, device_index: int | None = None) -> None: ...
        def total_memory(self, device_index: int | None = None) -> int: ...

    # --- pinned memory, which is torch's ---

    def pin_memory(self, tensor: torch.Tensor, align_bytes: int = 1, make_copy: bool = True, match_shape: bool = True) -> torch.Tensor:
        """Returns a copy in pinned memory.

        On a CPU, which copies to no device, it returns the tensor itself. The keywords have no effect.
        """
        from deepspeed.utils.pin_memory import get_active_native_pinned_memory
        from deepspeed.utils.pin_memory_tracker import track_pinned_memory

        get_active_native_pinned_memory()  # raises if DS_PIN_MEMORY_BACKEND asks for another kind
        pinned = self._pin(tensor)
        if pinned is not tensor:
            track_pinned_memory(pinned.nbytes)
        return pinned

    def _pin(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor

    def unpin_memory(self, tensor: torch.Tensor) -> None:
        """Changes nothing: torch frees pinned memory with its tensor."""

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        """Returns whether the tensor is in pinned memory; False for meta and fake tensors."""
        from torch._subclasses.fake_tensor import is_fake

        return not tensor.is_meta and not is_fake(tensor) and tensor.is_pinned()

    def register_host_memory(self, pointer: int, num_bytes: int) -> bool:
        """Returns False: memory that others allocated cannot be pinned."""
        return False

    def unregister_host_memory(self, pointer: int) -> None:
        """Changes nothing, since no memory was registered."""

    def on_accelerator(self, tensor: torch.Tensor) -> bool:
        return tensor.device.type == self._name

    def export_envs(self) -> list[str]:
        return ["NCCL", "LD_LIBRARY", "PATH"]

    def visible_devices_envs(self) -> list[str]:
        return ["CUDA_VISIBLE_DEVICES"]

    def set_visible_devices_envs(self, current_env: MutableMapping[str, str], local_accelerator_ids: Iterable[int]) -> None:
        for name in self.visible_devices_envs():
            current_env[name] = ",".join(map(str, local_accelerator_ids))

    def get_compile_backend(self) -> str:
        return self._compile_backend

    def set_compile_backend(self, backend: str) -> None:
        self._compile_backend = backend

    def get_op_builder(self, class_name: str) -> type[OpBuilder] | None:
        from deepspeed.ops import op_builder

        return getattr(op_builder, class_name, None)

    def create_op_builder(self, class_name: str) -> OpBuilder | None:
        made = self.get_op_builder(class_name)
        return made() if made is not None else None

    def op_builder_dir(self) -> str:
        return "deepspeed.ops.op_builder"

    @property
    def FloatTensor(self) -> type[torch.Tensor]:
        return torch.FloatTensor

    @property
    def HalfTensor(self) -> type[torch.Tensor]:
        return torch.HalfTensor

    @property
    def BFloat16Tensor(self) -> type[torch.Tensor]:
        return torch.BFloat16Tensor

    @property
    def IntTensor(self) -> type[torch.Tensor]:
        return torch.IntTensor

    @property
    def LongTensor(self) -> type[torch.Tensor]:
        return torch.LongTensor

    @property
    def DoubleTensor(self) -> type[torch.Tensor]:
        return torch.DoubleTensor

    @property
    def ByteTensor(self) -> type[torch.Tensor]:
        return torch.ByteTensor
