import os
import resource

import torch

from deepspeed.accelerator.abstract_accelerator import DeepSpeedAccelerator


class CPU_Accelerator(DeepSpeedAccelerator):
    """A rank on CPU cores. Memory is that of the process."""

    def device(self, device_index=None):
        return torch.device("cpu")

    def device_name(self, device_index=None):
        return "cpu"

    def set_device(self, device_index):
        os.environ["LOCAL_RANK"] = str(device_index)

    def current_device(self):
        # What scripts give to tensors as their device, as the number of a GPU is.
        return "cpu"

    def current_device_name(self):
        return "cpu"

    def device_count(self):
        return int(os.environ.get("LOCAL_SIZE", os.environ.get("LOCAL_WORLD_SIZE", 1)))

    def is_available(self):
        return True

    def synchronize(self, device_index=None):
        pass

    # --- random numbers ---

    def random(self):
        return torch.random

    def set_rng_state(self, new_state, device_index=None):
        torch.set_rng_state(new_state)

    def get_rng_state(self, device_index=None):
        return torch.get_rng_state()

    def manual_seed(self, seed):
        return torch.manual_seed(seed)

    def manual_seed_all(self, seed):
        return torch.manual_seed(seed)

    def initial_seed(self):
        return torch.initial_seed()

    def default_generator(self, device_index):
        return torch.default_generator

    # --- streams, of which a CPU has none ---

    @property
    def Stream(self):
        return None

    @property
    def Event(self):
        return None

    def stream(self, stream):
        from contextlib import nullcontext

        return nullcontext()

    def current_stream(self, device_index=None):
        return None

    def default_stream(self, device_index=None):
        return None

    # --- memory ---

    def empty_cache(self):
        pass

    def memory_allocated(self, device_index=None):
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()

    def max_memory_allocated(self, device_index=None):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    memory_cached = memory_reserved = memory_allocated
    max_memory_cached = max_memory_reserved = max_memory_allocated

    def reset_max_memory_allocated(self, device_index=None):
        pass

    reset_max_memory_cached = reset_peak_memory_stats = reset_max_memory_allocated

    def memory_stats(self, device_index=None):
        return {
            "allocated_bytes.all.current": self.memory_allocated(),
            "allocated_bytes.all.peak": self.max_memory_allocated(),
        }

    def total_memory(self, device_index=None):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def available_memory(self, device_index=None):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")

    def is_bf16_supported(self):
        return True

    def is_fp16_supported(self):
        """Returns whether the processor multiplies matrices in fp16, as DeepSpeed asks; training in fp16 runs on all of them."""
        return bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())

    def supported_dtypes(self):
        return [torch.float, torch.bfloat16] + ([torch.half] if self.is_fp16_supported() else [])

    def range_push(self, msg):
        pass

    def range_pop(self):
        pass

    # --- graphs, of which a CPU has none ---

    def create_graph(self):
        return None

    def capture_to_graph(self, graph, pool=None, stream=None):
        from contextlib import nullcontext

        return nullcontext()

    def replay_graph(self, graph):
        """Does nothing: what was captured ran at once."""

    def build_extension(self):
        from torch.utils.cpp_extension import BuildExtension

        return BuildExtension
