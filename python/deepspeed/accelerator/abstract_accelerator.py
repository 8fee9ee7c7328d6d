"""What scripts ask the device of a process, under DeepSpeed's names."""

import torch


class DeepSpeedAccelerator:
    """Has what CPU and GPUs answer alike. `_name` is the device's type."""

    _name = "cpu"
    _communication_backend_name = "gloo"
    _compile_backend = "inductor"

    def device_name(self, device_index=None):
        return self._name if device_index is None else f"{self._name}:{device_index}"

    def is_synchronized_device(self):
        return self._name == "cpu"

    def use_host_timers(self):
        return self.is_synchronized_device()

    def resolves_data_dependency(self):
        return self.is_synchronized_device()

    def handles_memory_backpressure(self):
        return self.is_synchronized_device()

    def communication_backend_name(self):
        return self._communication_backend_name

    def communication_backend_version(self):
        return torch.__version__

    def is_triton_supported(self):
        return False

    def prefer_triton_grouped_mm(self):
        return False

    def is_fp64_supported(self):
        return True

    def supported_dtypes(self):
        return [torch.float, torch.half, torch.bfloat16]

    def amp(self):
        return torch.amp

    def lazy_call(self, callback):
        callback()

    # --- pinned memory, which is torch's ---

    def pin_memory(self, tensor, align_bytes=1, make_copy=True, match_shape=True):
        """Returns a copy in pinned memory; a CPU, which copies to no device, gives the tensor back. The keywords change nothing."""
        from deepspeed.utils.pin_memory import get_active_native_pinned_memory
        from deepspeed.utils.pin_memory_tracker import track_pinned_memory

        get_active_native_pinned_memory()  # raises where DS_PIN_MEMORY_BACKEND asks for another kind
        pinned = self._pin(tensor)
        if pinned is not tensor:
            track_pinned_memory(pinned.nbytes)
        return pinned

    def _pin(self, tensor):
        return tensor

    def unpin_memory(self, tensor):
        """Does nothing: torch gives pinned memory back with its tensor."""

    def is_pinned(self, tensor):
        """Returns whether it lies in pinned memory; a meta or fake tensor lies in none."""
        from torch._subclasses.fake_tensor import is_fake

        return not tensor.is_meta and not is_fake(tensor) and tensor.is_pinned()

    def register_host_memory(self, pointer, num_bytes):
        """Returns False: memory of others is not pinned."""
        return False

    def unregister_host_memory(self, pointer):
        """Does nothing: none was registered."""

    def on_accelerator(self, tensor):
        return tensor.device.type == self._name

    def export_envs(self):
        return ["NCCL", "LD_LIBRARY", "PATH"]

    def visible_devices_envs(self):
        return ["CUDA_VISIBLE_DEVICES"]

    def set_visible_devices_envs(self, current_env, local_accelerator_ids):
        for name in self.visible_devices_envs():
            current_env[name] = ",".join(map(str, local_accelerator_ids))

    def get_compile_backend(self):
        return self._compile_backend

    def set_compile_backend(self, backend):
        self._compile_backend = backend

    def get_op_builder(self, class_name):
        from deepspeed.ops import op_builder

        return getattr(op_builder, class_name, None)

    def create_op_builder(self, class_name):
        made = self.get_op_builder(class_name)
        return made() if made is not None else None

    def op_builder_dir(self):
        return "deepspeed.ops.op_builder"

    @property
    def FloatTensor(self):
        return torch.FloatTensor

    @property
    def HalfTensor(self):
        return torch.HalfTensor

    @property
    def BFloat16Tensor(self):
        return torch.BFloat16Tensor

    @property
    def IntTensor(self):
        return torch.IntTensor

    @property
    def LongTensor(self):
        return torch.LongTensor

    @property
    def DoubleTensor(self):
        return torch.DoubleTensor

    @property
    def ByteTensor(self):
        return torch.ByteTensor
