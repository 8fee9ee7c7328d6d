from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from deepspeed.accelerator.abstract_accelerator import DeepSpeedAccelerator

if TYPE_CHECKING:
    import contextlib
    from types import ModuleType
    from typing import Any

try:
    import nvtx
except ImportError:
    nvtx = None


class CUDA_Accelerator(DeepSpeedAccelerator):
    """Represents a rank on one of NVIDIA's GPUs."""

    _name = "cuda"
    _communication_backend_name = "nccl"
    supports_nvtx_domain = True

    def __init__(self) -> None:
        self._nvtx_domains: dict[str, Any] = {}

    def device(self, device_index: int | None = None) -> torch.cuda.device:
        return torch.cuda.device(device_index)

    def set_device(self, device_index: int) -> None:
        torch.cuda.set_device(device_index)

    def current_device(self) -> int:
        return torch.cuda.current_device()

    def current_device_name(self) -> str:
        return f"cuda:{torch.cuda.current_device()}"

    def device_count(self) -> int:
        return torch.cuda.device_count()

    def is_available(self) -> bool:
        return torch.cuda.is_available()

    def synchronize(self, device_index: int | None = None) -> None:
        torch.cuda.synchronize(device_index)

    # --- random numbers ---

    def random(self) -> ModuleType:
        return torch.random

    def set_rng_state(self, new_state: torch.Tensor, device_index: int | None = None) -> None:
        torch.cuda.set_rng_state(new_state, "cuda" if device_index is None else device_index)

    def get_rng_state(self, device_index: int | None = None) -> torch.Tensor:
        return torch.cuda.get_rng_state("cuda" if device_index is None else device_index)

    def manual_seed(self, seed: int) -> None:
        torch.cuda.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.cuda.manual_seed_all(seed)

    def initial_seed(self) -> int:
        return torch.cuda.initial_seed()

    def default_generator(self, device_index: int) -> torch.Generator:
        return torch.cuda.default_generators[device_index]

    # --- streams ---

    @property
    def Stream(self) -> type[torch.cuda.Stream]:
        return torch.cuda.Stream

    @property
    def Event(self) -> type[torch.cuda.Event]:
        return torch.cuda.Event

    def stream(self, stream: torch.cuda.Stream | None) -> contextlib.AbstractContextManager[Any]:
        return torch.cuda.stream(stream)

    def current_stream(self, device_index: int | None = None) -> torch.cuda.Stream:
        return torch.cuda.current_stream(device_index)

    def default_stream(self, device_index: int | None = None) -> torch.cuda.Stream:
        return torch.cuda.default_stream(device_index)

    # --- memory ---

    def empty_cache(self) -> None:
        torch.cuda.empty_cache()

    def memory_allocated(self, device_index: int | None = None) -> int:
        return torch.cuda.memory_allocated(device_index)

    def max_memory_allocated(self, device_index: int | None = None) -> int:
        return torch.cuda.max_memory_allocated(device_index)

    def reset_max_memory_allocated(self, device_index: int | None = None) -> None:
        torch.cuda.reset_peak_memory_stats(device_index)

    reset_max_memory_cached = reset_peak_memory_stats = reset_max_memory_allocated

    def memory_reserved(self, device_index: int | None = None) -> int:
        return torch.cuda.memory_reserved(device_index)

    memory_cached = memory_reserved

    def max_memory_reserved(self, device_index: int | None = None) -> int:
        return torch.cuda.max_memory_reserved(device_index)

    max_memory_cached = max_memory_reserved

    def memory_stats(self, device_index: int | None = None) -> dict[str, Any]:
        return torch.cuda.memory_stats(device_index)

    def total_memory(self, device_index: int | None = None) -> int:
        return torch.cuda.get_device_properties(device_index).total_memory

    def available_memory(self, device_index: int | None = None) -> int:
        return torch.cuda.mem_get_info(device_index)[0]

    def is_bf16_supported(self) -> bool:
        is_supported: bool = torch.cuda.is_bf16_supported()
        return is_supported

    def is_fp16_supported(self) -> bool:
        return True

    def _pin(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.pin_memory()

    # --- ranges for NVIDIA's profilers: in a domain where the package nvtx is there, else torch's ---

    def _nvtx_domain(self, domain: str | None) -> Any:
        if nvtx is None or domain is None:
            return None
        if domain not in self._nvtx_domains:
            self._nvtx_domains[domain] = nvtx.get_domain(domain)
        return self._nvtx_domains[domain]

    def range_push(self, msg: str, domain: str | None = None, category: str | None = None) -> Any:
        of_domain = self._nvtx_domain(domain)
        if of_domain is not None:
            return of_domain.push_range(message=msg, category=category)
        return torch.cuda.nvtx.range_push(msg)

    def range_pop(self, domain: str | None = None) -> Any:
        of_domain = self._nvtx_domain(domain)
        return of_domain.pop_range() if of_domain is not None else torch.cuda.nvtx.range_pop()

    # --- graphs ---

    def create_graph(self) -> torch.cuda.CUDAGraph:
        return torch.cuda.CUDAGraph()

    def capture_to_graph(
        self, graph: torch.cuda.CUDAGraph, pool: Any = None, stream: torch.cuda.Stream | None = None
    ) -> contextlib.AbstractContextManager[Any]:
        return torch.cuda.graph(graph, pool, stream)

    def replay_graph(self, graph: torch.cuda.CUDAGraph) -> None:
        graph.replay()

    def build_extension(self) -> type:
        from torch.utils.cpp_extension import BuildExtension

        return BuildExtension
