"""checkpoint(function, *args): backward computes the function again, in place of keeping its activations.

The core keeps the inputs, as configure() says, and calls the function again with the random states and the autocast of before.
"""

from deepspeed import _core
from deepspeed._mpu import core_mpu
from deepspeed.runtime.activation_checkpointing.call_parts import CallParts
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
    """Returns function(*args, **kwargs), which backward computes again; a list that it returns becomes a tuple."""
    return _checkpoint(function, args, kwargs, use_reentrant=False)


def non_reentrant_checkpoint(function, *args):
    """Is checkpoint(), which is not reentrant either."""
    return checkpoint(function, *args)


def _checkpoint(function, args, kwargs, use_reentrant):
    name = f"checkpoint() of {getattr(function, '__name__', type(function).__name__)}"
    call = CallParts(function, args, kwargs, name)
    outputs = _core.checkpoint_tensors(call.run, call.take_inputs(), use_reentrant, name)
    return call.result_with(outputs)


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

    With partition_activations the ranks of the mpu's tensor parallel group call it together.
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
        assert num_layers is not None, "contiguous_memory_optimization needs number_checkpoints, the number of layers that are checkpointed"
    _configure_core()
    deepspeed_checkpointing_enabled = True


def _configure_core():
    _core.configure_checkpointing(
        mpu=core_mpu(mpu) if PARTITION_ACTIVATIONS else None,
        partition_activations=PARTITION_ACTIVATIONS,
        contiguous_checkpointing=CONTIGUOUS_CHECKPOINTING,
        num_checkpoints=num_layers,
        checkpoint_in_cpu=CPU_CHECKPOINT,
        synchronize=SYNCHRONIZE,
        profile=PROFILE_TIME,
    )


def is_configured():
    """Returns whether configure() was called."""
    return deepspeed_checkpointing_enabled


def reset():
    """Frees the contiguous buffers that wait for further forwards."""
    _core.reset_checkpointing()


def set_num_layers(nlayers):
    global num_layers
    num_layers = nlayers
    _configure_core()


def partition_activations_in_checkpoint(partition_activation):
    global PARTITION_ACTIVATIONS
    PARTITION_ACTIVATIONS = partition_activation
    _configure_core()


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
    """Runs a region by a backward inside of backward. At least one tensor among the arguments needs a gradient."""

    @staticmethod
    def apply(run_function, all_outputs, *args):
        """Adds the outputs to the list, of which no reference is kept, and returns them."""
        output = _checkpoint(run_function, args, {}, use_reentrant=True)
        all_outputs.extend(output if isinstance(output, tuple) else [output])
        return output
