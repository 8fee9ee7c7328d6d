"""Names DeepSpeed's kernel builders. The core has its kernels compiled in, so nothing is built.

is_compatible() tells whether the engine can do the op's job. load() returns the few ops that scripts call themselves.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

import torch

from deepspeed._errors import NotSupportedError

if TYPE_CHECKING:
    from typing import Any, NoReturn


class OpBuilder:
    """Represents an op. NAME is its key in `deepspeed.ops.__compatible_ops__`."""

    NAME = ""
    _available = False

    def __init__(self, name: str | None = None) -> None:
        self.name = name or self.NAME

    @staticmethod
    def is_rocm_pytorch() -> bool:
        return torch.version.hip is not None

    @staticmethod
    def installed_rocm_version() -> tuple[int, ...]:
        """Returns (major, minor); (0, 0) if torch is not built for ROCm."""
        return tuple(int(part) for part in (torch.version.hip or "0.0").split(".")[:2])

    def absolute_name(self) -> str:
        return f"deepspeed.ops.{self.name}"

    def is_compatible(self, verbose: bool = False) -> bool:
        return self._available

    def builder(self) -> NoReturn:
        raise NotSupportedError(f"op_builder.{type(self).__name__}.builder() is not supported: the kernels are compiled in")

    def load(self, verbose: bool = True) -> Any:
        """Raises NotSupportedError: the engine calls its kernels itself."""
        raise NotSupportedError(
            f"op_builder.{type(self).__name__}.load() is not supported: the engine calls its kernels itself; use the classes of "
            "deepspeed.ops and the keys of the config"
        )


class CUDAOpBuilder(OpBuilder):
    """Represents an op on a GPU."""


class TorchCPUOpBuilder(CUDAOpBuilder):
    """Represents an op on the CPU."""


class UtilsBuilder(OpBuilder):
    """Provides flatten, unflatten and cast_to_byte_tensor."""

    NAME = "utils"
    _available = True

    def load(self, verbose: bool = True) -> Any:
        return types.SimpleNamespace(
            flatten=torch._utils._flatten_dense_tensors,
            unflatten=torch._utils._unflatten_dense_tensors,
            cast_to_byte_tensor=_bytes_of,
        )


def _bytes_of(tensors: Any) -> Any:
    """Returns the memory of a tensor, or of each in a list, as flat byte tensors that share it."""
    if isinstance(tensors, torch.Tensor):
        return tensors.view(-1).view(torch.uint8)
    return [_bytes_of(tensor) for tensor in tensors]


def _make(class_name: str, op_name: str, available: bool, base: type[OpBuilder] = CUDAOpBuilder) -> None:
    doc = f"Stands for the op {op_name}, " + ("whose work the engine does." if available else "which does not exist here.")
    globals()[class_name] = type(class_name, (base,), {"NAME": op_name, "_available": available, "__doc__": doc, "__module__": __name__})


for _class_name, _op_name in {
    "CPUAdamBuilder": "cpu_adam",
    "CPUAdagradBuilder": "cpu_adagrad",
    "CPULionBuilder": "cpu_lion",
    "FusedAdamBuilder": "fused_adam",
    "FusedLambBuilder": "fused_lamb",
    "FusedLionBuilder": "fused_lion",
    "StochasticTransformerBuilder": "stochastic_transformer",
    "TransformerBuilder": "transformer",
}.items():
    _make(_class_name, _op_name, True)

for _class_name, _op_name in {
    "AsyncIOBuilder": "async_io",
    "DeepCompileBuilder": "dc",
    "EvoformerAttnBuilder": "evoformer_attn",
    "FPQuantizerBuilder": "fp_quantizer",
    "GDSBuilder": "gds",
    "InferenceBuilder": "transformer_inference",
    "InferenceCoreBuilder": "inference_core_ops",
    "InferenceCutlassBuilder": "cutlass_ops",
    "PinMemoryBuilder": "pin_memory",
    "QuantizerBuilder": "quantizer",
    "RaggedOpsBuilder": "ragged_device_ops",
    "RaggedUtilsBuilder": "ragged_ops",
    "RandomLTDBuilder": "random_ltd",
    "SparseAttnBuilder": "sparse_attn",
    "SpatialInferenceBuilder": "spatial_inference",
}.items():
    _make(_class_name, _op_name, False)

if TYPE_CHECKING:
    AsyncIOBuilder: type[OpBuilder]

ALL_OPS: dict[str, OpBuilder] = {
    made.NAME: made() for made in list(globals().values()) if isinstance(made, type) and issubclass(made, OpBuilder) and made.NAME
}


def get_default_compute_capabilities() -> str:
    """Returns the compute capability of the GPU, as "9.0"; "" without one."""
    return "{}.{}".format(*torch.cuda.get_device_capability()) if torch.cuda.is_available() else ""
