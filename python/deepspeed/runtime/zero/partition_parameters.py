"""zero.Init and zero.GatheredParameters."""

import contextlib
import enum
import os
import threading

import torch
import torch.distributed as dist

from deepspeed import _config, _core, _world
from deepspeed._errors import NotSupportedError, UsageError, not_supported_class
from deepspeed.runtime.zero.frozen_newborns import FrozenNewborns
from deepspeed.runtime.zero.parameter_attributes import ZeroParamStatus, ZeroParamType, is_zero_param, used_elsewhere  # noqa: F401


_of_thread = threading.local()


class DeepSpeedTensorOverride(enum.Enum):
    """Is what zero.Init of DeepSpeed changes of the tensors that constructors make."""

    dtype = 1
    device = 2


partitioned_param_data_shape = [0]  # as DeepSpeed shows partitioned parameters, which keep their shapes here


class GatheredParameters:
    """Makes partitioned parameters whole for a scope, on every rank.

    params: a tensor, or an iterable of tensors; None among them and ordinary tensors are left alone. modifier_rank: the rank
    whose changes become those of all ranks at the end; None: changes are an error.
    """

    def __init__(self, params, modifier_rank=None, fwd_module=None, enabled=True):
        given = [params] if isinstance(params, torch.Tensor) else list(params)
        self.params = [param for param in given if is_zero_param(param)]
        self.src_rank = modifier_rank
        self.enabled = enabled and bool(self.params)
        self._scope = None

    def __enter__(self):
        if self.enabled:
            self._scope = _core.GatheredParameters(self.params, self.src_rank)

    def __exit__(self, kind, *_):
        scope, self._scope = self._scope, None
        if scope is None:
            return
        if kind is None:
            scope.close()
        else:
            scope.forget()


def make_whole(params):
    """Makes ordinary tensors of partitioned parameters that no engine has: of a zero.Init, or of an engine that is gone. Collective."""
    _core.make_whole(list(params))


CUDAQuantizer = not_supported_class(
    "deepspeed.runtime.zero.partition_parameters.CUDAQuantizer",
    "the engine quantizes what it gathers by itself; set zero_quantized_weights in the config",
)


class MultipleAllGatherHandles:
    """Waits for several handles of gathers."""

    def __init__(self, handles):
        self.handles = handles

    def wait(self, handle_dependency=True):
        for handle in self.handles:
            handle.wait(handle_dependency=handle_dependency)


class InsertPostInitMethodToModuleSubClasses:
    """Is the base of zero.Init. Its subclasses' __init__ is not wrapped: the core sees parameters where they are born."""


class Init(InsertPostInitMethodToModuleSubClasses):
    """Partitions the parameters of what is built in its scope, while it is built: no rank holds the model as a whole."""

    def __init__(
        self,
        module=None,
        data_parallel_group=None,
        mem_efficient_linear=True,
        remote_device=None,
        pin_memory=False,
        config_dict_or_path=None,
        config=None,
        enabled=True,
        dtype=None,
        mpu=None,
        zero_param_parallel_group=None,
        zero_quantized_weights=False,
        zero_quantized_nontrainable_weights=False,
        sequence_data_parallel_group=None,
        param_swapper=None,
    ):
        for name, value in (
            ("mpu", mpu),
            ("zero_param_parallel_group", zero_param_parallel_group),
        ):
            if enabled and value is not None:
                raise NotSupportedError(f"zero.Init({name}=...) is not supported; leave it out")
        self._group = data_parallel_group if data_parallel_group is not None else sequence_data_parallel_group
        self.enabled = enabled
        source = config_dict_or_path if config_dict_or_path is not None else config
        self._config = None if source is None else _init_config(source)
        asked = {
            "zero_quantized_weights": zero_quantized_weights,
            "zero_quantized_nontrainable_weights": zero_quantized_nontrainable_weights,
        }
        if any(asked.values()):
            self._config = self._config or _init_config({"zero_optimization": {"stage": 3}})
            self._config["zero_optimization"].update({key: True for key, value in asked.items() if value})
        self._remote_device = remote_device or "none"
        self._pin_memory = pin_memory
        self._dtype = dtype
        self._scope = None
        if enabled and module is not None:
            _ensure_world(self._group)
            _core.partition_module(_parameters(module), self._config, self._remote_device, self._pin_memory, self._dtype)

    def __enter__(self):
        if self.enabled:
            _ensure_world(self._group)
            self._open()
            _open_inits().append(self)
        return self

    def _open(self):
        self._scope = _core.Init(self._config, self._remote_device, self._pin_memory, self._dtype)
        self._frozen = FrozenNewborns()

    def _close(self):
        scope, self._scope = self._scope, None
        frozen = self._frozen.take()
        scope.close()
        if frozen:
            _core.partition_module(frozen, self._config, self._remote_device, self._pin_memory, self._dtype)

    def __exit__(self, kind, *_):
        if self in _open_inits():
            _open_inits().remove(self)
        if self._scope is None:
            return
        if kind is None:
            self._close()
        else:
            self._frozen.take()
            self._scope.forget()
            self._scope = None


def _open_inits():
    """Returns the zero.Inits that are open on this thread, the outermost first."""
    if not hasattr(_of_thread, "inits"):
        _of_thread.inits = []
    return _of_thread.inits


@contextlib.contextmanager
def init_paused():
    """Ends the zero.Inits of this thread, so that an engine can take over what they built, and begins them anew at the end."""
    paused = [init for init in _open_inits() if init._scope is not None]
    for init in reversed(paused):
        init._close()
    yield
    for init in paused:
        init._open()


def _ensure_world(group):
    """Joins the ranks over which parameters are partitioned, which are all of them."""
    _world.ensure_world()
    ranks = dist.get_world_size()
    wrong = _contradicting_single_rank_pg_error(ranks, group)
    if wrong is not None:
        raise UsageError(wrong)
    if group is not None and dist.get_world_size(group=group) != ranks:
        raise NotSupportedError(
            f"zero.Init(data_parallel_group=...) of {dist.get_world_size(group=group)} among {ranks} ranks is not supported: "
            "parameters are partitioned over all ranks; leave it out"
        )


def _parameters(module):
    return [(name, param) for name, param in module.named_parameters()]


def _init_config(source):
    """Fills in what a config has not yet when a model is built: its client knows no batch size then."""
    config = _config.for_core(_config.read_config(source))
    if not {"train_batch_size", "train_micro_batch_size_per_gpu"} & set(config):
        config["train_micro_batch_size_per_gpu"] = 1
    return {
        key: value
        for key, value in config.items()
        if key in ("zero_optimization", "fp16", "bf16", "bfloat16", "aio", "train_batch_size", "train_micro_batch_size_per_gpu")
    }


def register_external_parameter(module, parameter):
    """Announces that a module uses another one's parameter. Nothing needs it: an operator gathers what it uses."""
    if not isinstance(parameter, torch.nn.Parameter):
        raise RuntimeError("Parameter is not a torch.nn.Parameter")
    note_external_parameter(module, parameter)


def note_external_parameter(module, parameter):
    """Notes that the module uses the parameter of another one."""
    external_parameters(module)[id(parameter)] = parameter
    used_elsewhere[parameter] = True


def unregister_external_parameter(module, parameter):
    """Takes an announcement back."""
    if not isinstance(parameter, torch.nn.Parameter):
        raise RuntimeError("Parameter is not a torch.nn.Parameter")
    if external_parameters(module).pop(id(parameter), None) is None:
        raise RuntimeError("Parameter is not a registered external parameter of module.")


def external_parameters(module):
    """Returns {id: parameter} of the parameters that the module uses and does not have."""
    if not hasattr(module, "_external_params"):
        module._external_params = {}
    return module._external_params


def get_allgather_dtype(param, param_ds_tensor):
    """Returns the dtype in which a parameter's shards travel when they are gathered: their own, or that of autocast."""
    from deepspeed.runtime.torch_autocast import get_comm_dtype, has_comm_dtype

    return get_comm_dtype(param) if has_comm_dtype(param) else param_ds_tensor.dtype


def zero_wrapper_for_fp_tensor_constructor(fn, target_fp_dtype):
    """Returns the function itself: constructors make what they are asked for, and zero.Init casts at its end."""
    return fn


_orig_torch_tensor = torch.tensor
_orig_torch_empty = torch.empty
_orig_torch_zeros = torch.zeros
_orig_torch_ones = torch.ones
_orig_torch_full = torch.full
_orig_torch_arange = torch.arange
_orig_torch_eye = torch.eye
_orig_torch_randn = torch.randn


def get_accelerator():
    from deepspeed.accelerator import get_accelerator as get

    return get()


def _contradicting_single_rank_pg_error(dp_world_size, explicit_process_group, env=None):
    """Returns the text of an error where a launcher has started several ranks and the default group has one; else None.

    Each rank would hold the whole model then. A group of one that the caller has passed itself is meant so.
    """
    if dp_world_size != 1 or explicit_process_group is not None:
        return None
    try:
        launched = int((os.environ if env is None else env).get("WORLD_SIZE") or 1)
    except ValueError:
        return None
    if launched <= 1:
        return None
    return (
        f"zero.Init: the default process group has 1 rank, but the launcher has set WORLD_SIZE={launched}, so each rank would hold "
        "the whole model; call deepspeed.init_distributed() before anything else makes a group, or pass data_parallel_group"
    )


def __getattr__(name):
    if name in ("zero3_linear_wrap", "LinearFunctionForZeroStage3", "LinearModuleForZeroStage3"):
        from deepspeed.runtime.zero import linear

        return getattr(linear, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
