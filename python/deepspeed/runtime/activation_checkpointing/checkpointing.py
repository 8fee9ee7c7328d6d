"""Provides checkpoint(function, *args): backward recomputes activations instead of keeping them.

The core keeps the inputs as configure() says. It calls the function again with the earlier random states and autocast.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING

from deepspeed import _core
from deepspeed._mpu import core_mpu
from deepspeed.runtime.activation_checkpointing.call_parts import CallParts
from deepspeed.runtime.activation_checkpointing.rng_states import (
    _MODEL_PARALLEL_RNG_TRACKER_NAME,
    CudaRNGStatesTracker as CudaRNGStatesTracker,
    get_cuda_rng_tracker,
)
from deepspeed.utils.bwc import bwc_tensor_model_parallel_rank

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from deepspeed._types import Mpu

deepspeed_checkpointing_enabled = False
mpu: Mpu | None = None
num_layers: int | None = None
PARTITION_ACTIVATIONS = False
CPU_CHECKPOINT = False
CONTIGUOUS_CHECKPOINTING = False
SYNCHRONIZE = False
PROFILE_TIME = False


def checkpoint(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Returns function(*args, **kwargs), which backward computes again.

    A list that it returns becomes a tuple. Tensors among the arguments, also in containers, are kept as configure() says. An error during
    the recomputation says so in a note.
    """
    return _checkpoint_untraced(function, args, kwargs, use_reentrant=False)


def non_reentrant_checkpoint(function: Callable[..., Any], *args: Any) -> Any:
    """Calls checkpoint(), which is not reentrant either."""
    return checkpoint(function, *args)


def _checkpoint_untraced(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], use_reentrant: bool) -> Any:
    """Calls _checkpoint() outside of graphs of torch.compile, which would save its tracing tensors."""
    if "torch._dynamo" in sys.modules:
        from deepspeed.runtime.uncompiled import run_untraced

        return run_untraced(_checkpoint, (function, args, kwargs, use_reentrant), {})
    return _checkpoint(function, args, kwargs, use_reentrant)


def _checkpoint(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], use_reentrant: bool) -> Any:
    name = f"checkpoint() of {getattr(function, '__name__', type(function).__name__)}"
    call = CallParts(function, args, kwargs, name)
    outputs = _core.checkpoint_tensors(call.run, call.take_inputs(), use_reentrant, name, _identity(function))
    return call.result_with(outputs)


def _identity(function: Callable[..., Any]) -> int:
    """Returns a number that identifies the region.

    It is that of a method's object, otherwise that of the code, which functions made anew for each call share.
    """
    while isinstance(function, functools.partial):
        function = function.func
    owner = getattr(function, "__self__", None)
    return id(getattr(function, "__code__", function) if owner is None else owner)


def configure(
    mpu_: Mpu | None,
    deepspeed_config: Any = None,
    partition_activations: bool | None = None,
    contiguous_checkpointing: bool | None = None,
    num_checkpoints: int | None = None,
    checkpoint_in_cpu: bool | None = None,
    synchronize: bool | None = None,
    profile: bool | None = None,
) -> None:
    """Sets the options from a config's section activation_checkpointing; arguments override it.

    With partition_activations the ranks of the mpu's tensor parallel group must call it together.
    """
    global mpu, deepspeed_checkpointing_enabled
    global PARTITION_ACTIVATIONS, CONTIGUOUS_CHECKPOINTING, CPU_CHECKPOINT, SYNCHRONIZE, PROFILE_TIME, num_layers
    section: Mapping[str, Any] = {}
    if deepspeed_config is not None:
        from deepspeed import _config

        section = _config.read_config(deepspeed_config).get("activation_checkpointing") or {}

    def chosen(argument: Any, key: str, default: Any) -> Any:
        return argument if argument is not None else section.get(key, default)

    if mpu_ is not None:
        mpu = mpu_
    PARTITION_ACTIVATIONS = chosen(partition_activations, "partition_activations", False)
    CONTIGUOUS_CHECKPOINTING = chosen(contiguous_checkpointing, "contiguous_memory_optimization", False)
    CPU_CHECKPOINT = chosen(checkpoint_in_cpu, "cpu_checkpointing", False)
    SYNCHRONIZE = chosen(synchronize, "synchronize_checkpoint_boundary", False)
    PROFILE_TIME = chosen(profile, "profile", False)
    num_layers = chosen(num_checkpoints, "number_checkpoints", None)
    if CONTIGUOUS_CHECKPOINTING:
        assert PARTITION_ACTIVATIONS, "contiguous_memory_optimization needs partition_activations"
        assert num_layers is not None, "contiguous_memory_optimization needs number_checkpoints, the number of layers that are checkpointed"
    _configure_core()
    deepspeed_checkpointing_enabled = True


def _configure_core() -> None:
    _core.configure_checkpointing(
        mpu=core_mpu(mpu) if PARTITION_ACTIVATIONS else None,
        partition_activations=PARTITION_ACTIVATIONS,
        contiguous_checkpointing=CONTIGUOUS_CHECKPOINTING,
        num_checkpoints=num_layers,
        checkpoint_in_cpu=CPU_CHECKPOINT,
        synchronize=SYNCHRONIZE,
        profile=PROFILE_TIME,
    )


def is_configured() -> bool:
    """Returns whether configure() was called."""
    return deepspeed_checkpointing_enabled


def reset() -> None:
    """Frees the contiguous buffers that are kept for further forwards."""
    _core.reset_checkpointing()


def set_num_layers(nlayers: int) -> None:
    global num_layers
    num_layers = nlayers
    _configure_core()


def partition_activations_in_checkpoint(partition_activation: bool) -> None:
    global PARTITION_ACTIVATIONS
    PARTITION_ACTIVATIONS = partition_activation
    _configure_core()


def model_parallel_cuda_manual_seed(seed: int) -> None:
    """Seeds the generator for all ranks of a replica, and the tracker by tensor parallel rank."""
    from deepspeed.accelerator import get_accelerator

    tracker = get_cuda_rng_tracker()
    tracker.reset()
    get_accelerator().manual_seed(seed)
    tracker.add(_MODEL_PARALLEL_RNG_TRACKER_NAME, seed + 2718 + bwc_tensor_model_parallel_rank(mpu))


def model_parallel_reconfigure_tp_seed(seed: int) -> None:
    """Seeds the tracker's state again."""
    from deepspeed.accelerator import get_accelerator

    with get_cuda_rng_tracker().fork():
        get_accelerator().manual_seed(seed + 2718 + bwc_tensor_model_parallel_rank(mpu))


class CheckpointFunction:
    """Runs a region with a nested backward. At least one tensor among the arguments must require a gradient."""

    @staticmethod
    def apply(run_function: Callable[..., Any], all_outputs: list[Any], *args: Any) -> Any:
        """Appends the outputs to the list, which is not kept, and returns them."""
        output = _checkpoint_untraced(run_function, args, {}, use_reentrant=True)
        all_outputs.extend(output if isinstance(output, tuple) else [output])
        return output
