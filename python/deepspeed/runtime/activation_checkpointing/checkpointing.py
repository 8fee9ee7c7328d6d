"""checkpoint(function, *args): backward computes the function again, in place of keeping its activations.

It is torch.utils.checkpoint in its non-reentrant form, with the tracker's random states.
"""
import contextlib

import torch
import torch.utils.checkpoint as torch_checkpoint

from deepspeed._errors import NotSupportedError
from deepspeed.runtime.activation_checkpointing.rng_states import (
    _MODEL_PARALLEL_RNG_TRACKER_NAME,
    CudaRNGStatesTracker,
    get_cuda_rng_tracker,
)
from deepspeed.utils.bwc import bwc_tensor_model_parallel_rank

deepspeed_checkpointing_enabled = False
mpu = None
num_layers = None
PARTITION_ACTIVATIONS = False
CPU_CHECKPOINT = False
CONTIGUOUS_CHECKPOINTING = False
SYNCHRONIZE = False
PROFILE_TIME = False


def checkpoint(function, *args, **kwargs):
    """Returns function(*args, **kwargs), which backward computes again. With checkpoint_in_cpu, inputs wait on the CPU."""
    with _kept_on_cpu():
        output = torch_checkpoint.checkpoint(function, *args, use_reentrant=False, context_fn=_contexts, **kwargs)
    return tuple(output) if isinstance(output, list) else output


def non_reentrant_checkpoint(function, *args):
    """Is checkpoint(): there is no other form."""
    return checkpoint(function, *args)


def _kept_on_cpu():
    if CPU_CHECKPOINT:
        return torch.autograd.graph.save_on_cpu(pin_memory=torch.cuda.is_available())
    return contextlib.nullcontext()


def _contexts():
    """Returns the scopes of the first and of the second computation: the second one draws the first one's numbers."""
    tracker = get_cuda_rng_tracker()
    before = tracker.get_states()

    @contextlib.contextmanager
    def again():
        now = tracker.get_states()
        tracker.set_states(dict(before))
        try:
            yield
        finally:
            tracker.set_states(now)

    return contextlib.nullcontext(), again()


def configure(
    mpu_,
    deepspeed_config=None,
    partition_activations=None,
    contiguous_checkpointing=None,
    num_checkpoints=None,
    checkpoint_in_cpu=None,
    synchronize=None,
    profile=None,
):
    """Sets the options: those of a config's section activation_checkpointing, and over them the arguments.

    Partitioning over a tensor parallel group of one rank changes nothing; more ranks are a NotSupportedError.
    """
    global mpu, deepspeed_checkpointing_enabled
    global PARTITION_ACTIVATIONS, CONTIGUOUS_CHECKPOINTING, CPU_CHECKPOINT, SYNCHRONIZE, PROFILE_TIME, num_layers
    section = {}
    if deepspeed_config is not None:
        from deepspeed import _config

        section = _config.read_config(deepspeed_config).get("activation_checkpointing") or {}

    def chosen(argument, key, default):
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
        assert num_layers is not None, "contiguous_memory_optimization needs number_checkpoints"
    if PARTITION_ACTIVATIONS and mpu is not None and _slices(mpu) > 1:
        raise NotSupportedError("partition_activations over more than one rank is not supported; leave it off")
    deepspeed_checkpointing_enabled = True


def _slices(mpu_):
    from deepspeed.utils.bwc import bwc_tensor_model_parallel_world_size

    return bwc_tensor_model_parallel_world_size(mpu_)


def is_configured():
    """Returns whether configure() was called."""
    return deepspeed_checkpointing_enabled


def reset():
    """Has nothing to do: no buffers outlive a backward."""


def set_num_layers(nlayers):
    global num_layers
    num_layers = nlayers


def partition_activations_in_checkpoint(partition_activation):
    global PARTITION_ACTIVATIONS
    PARTITION_ACTIVATIONS = partition_activation


def model_parallel_cuda_manual_seed(seed):
    """Seeds the generator alike on the ranks of a replica, and the tracker's state by tensor parallel rank."""
    from deepspeed.accelerator import get_accelerator

    tracker = get_cuda_rng_tracker()
    tracker.reset()
    get_accelerator().manual_seed(seed)
    tracker.add(_MODEL_PARALLEL_RNG_TRACKER_NAME, seed + 2718 + bwc_tensor_model_parallel_rank(mpu))


def model_parallel_reconfigure_tp_seed(seed):
    """Seeds the tracker's state anew."""
    from deepspeed.accelerator import get_accelerator

    with get_cuda_rng_tracker().fork():
        get_accelerator().manual_seed(seed + 2718 + bwc_tensor_model_parallel_rank(mpu))


class CheckpointFunction:
    """Has checkpoint() under the name of an autograd function."""

    @staticmethod
    def apply(function, all_outputs, *args):
        output = checkpoint(function, *args)
        all_outputs.extend(output if isinstance(output, tuple) else [output])
        return output
