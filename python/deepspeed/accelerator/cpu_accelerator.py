from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING

import torch

from deepspeed.accelerator.abstract_accelerator import DeepSpeedAccelerator

if TYPE_CHECKING:
    import contextlib
    from types import ModuleType
    from typing import Any


class CPU_Accelerator(DeepSpeedAccelerator):
    """Represents a rank on CPU cores. Memory figures are those of the process."""

    def device(self, device_index: int | None = None) -> torch.device:
        return torch.device("cpu")

    def device_name(self, device_index: int | None = None) -> str:
        return "cpu"

    def set_device(self, device_index: int) -> None:
        os.environ["LOCAL_RANK"] = str(device_index)

    def current_device(self) -> str:
        # Scripts pass this as a device, as they pass a GPU's number.
        return "cpu"

    def current_device_name(self) -> str:
        return "cpu"

    def device_count(self) -> int:
        return int(os.environ.get("LOCAL_SIZE", os.environ.get("LOCAL_WORLD_SIZE", 1)))

    def is_available(self) -> bool:
        return True

    def synchronize(self, device_index: int | None = None) -> None:
        pass

    # --- random numbers ---

    def random(self) -> ModuleType:
        return torch.random

    def set_rng_state(self, new_state: torch.Tensor, device_index: int | None = None) -> None:
        torch.set_rng_state(new_state)

    def get_rng_state(self, device_index: int | None = None) -> torch.Tensor:
        return torch.get_rng_state()

    def manual_seed(self, seed: int) -> torch.Generator:
        return torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> torch.Generator:
        return torch.manual_seed(seed)

    def initial_seed(self) -> int:
        return torch.initial_seed()

    def default_generator(self, device_index: int) -> torch.Generator:
        return torch.default_generator

    # --- streams, of which a CPU has none ---

    @property
    def Stream(self) -> None:
        return None

    @property
    def Event(self) -> None:
        return None

    def stream(self, stream: object) -> contextlib.AbstractContextManager[Any]:
        from contextlib import nullcontext

        return nullcontext()

    def current_stream(self, device_index: int | None = None) -> None:
        return None

    def default_stream(self, device_index: int | None = None) -> None:
        return None

    # --- memory ---

    def empty_cache(self) -> None:
        pass

    def memory_allocated(self, device_index: int | None = None) -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()

    def max_memory_allocated(self, device_index: int | None = None) -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    memory_cached = memory_reserved = memory_allocated
    max_memory_cached = max_memory_reserved = max_memory_allocated

    def reset_max_memory_allocated(self, device_index: int | None = None) -> None:
        pass

    reset_max_memory_cached = reset_peak_memory_stats = reset_max_memory_allocated

    def memory_stats(self, device_index: int | None = None) -> dict[str, Any]:
        return {
            "allocated_bytes.all.current": self.memory_allocated(),
            "allocated_bytes.all.peak": self.max_memory_allocated(),
        }

    def total_memory(self, device_index: int | None = None) -> int:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def available_memory(self, device_index: int | None = None) -> int:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")

    def is_bf16_supported(self) -> bool:
        return True

    def is_fp16_supported(self) -> bool:
        """Returns whether the processor multiplies matrices in fp16, as in DeepSpeed. Training in fp16 works on every processor."""
        return bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())

    def supported_dtypes(self) -> list[torch.dtype]:
        return [torch.float, torch.bfloat16] + ([torch.half] if self.is_fp16_supported() else [])

    def range_push(self, msg: str) -> None:
        pass

    def range_pop(self) -> None:
        pass

    # --- graphs, of which a CPU has none ---

    def create_graph(self) -> None:
        return None

    def capture_to_graph(self, graph: object, pool: object = None, stream: object = None) -> contextlib.AbstractContextManager[Any]:
        from contextlib import nullcontext

        return nullcontext()

    def replay_graph(self, graph: object) -> None:
        """Changes nothing: what was captured ran at once."""

    def build_extension(self) -> type:
        from torch.utils.cpp_extension import BuildExtension

        return BuildExtension
