"""Reads and writes what the optimizer holds of one parameter, wherever its partitions lie.

All ranks make the calls of full values, in the same order; those of local values, at stage 3, talk to no rank.
"""
from deepspeed import _core, _world
from deepspeed._errors import UsageError


def _core_of(param):
    """Returns the core of the engine that trains the parameter."""
    for engine in _world.engines:
        if engine._core is not None and engine._owns(param):
            return engine._core
    raise UsageError("the tensor is no parameter of an engine that lives; pass the model's own parameter")


def safe_get_full_fp32_param(param):
    """Returns a copy of the fp32 weights, in the parameter's shape."""
    return _core.safe_get_full_fp32_param(_core_of(param), param)


def safe_set_full_fp32_param(param, value):
    """Sets the fp32 weights, and the model's to them."""
    _core.safe_set_full_fp32_param(_core_of(param), param, value)


def safe_get_full_optimizer_state(param, optim_state_key):
    """Returns a copy of a state ("exp_avg", ...); None before the first step."""
    return _core.safe_get_full_optimizer_state(_core_of(param), param, optim_state_key)


def safe_set_full_optimizer_state(param, value, optim_state_key):
    """Sets a state of the optimizer."""
    _core.safe_set_full_optimizer_state(_core_of(param), param, value, optim_state_key)


def safe_get_full_grad(param):
    """Returns the gradient of the whole batch, in fp32; None where no backward of the window's end has run."""
    try:
        return _core.safe_get_full_grad(_core_of(param), param)
    except UsageError:
        if not param.requires_grad:
            raise
        return None


def safe_set_full_grad(param, value):
    """Sets the gradient that step() will use."""
    _core.safe_set_full_grad(_core_of(param), param, value)


def safe_update_full_grad_vectorized(param_list, update_func):
    """Sets each gradient to what `update_func(gradient, parameter)` returns of it."""
    for param in param_list:
        gradient = safe_get_full_grad(param)
        if gradient is not None:
            safe_set_full_grad(param, update_func(gradient, param))


def safe_get_local_fp32_param(param):
    """Returns a copy of this rank's part of the fp32 weights."""
    return _core.safe_get_local_fp32_param(_core_of(param), param)


def safe_set_local_fp32_param(param, value):
    """Sets this rank's part of the fp32 weights; all ranks call it."""
    _core.safe_set_local_fp32_param(_core_of(param), param, value)


def safe_get_local_optimizer_state(param, optim_state_key):
    """Returns a copy of this rank's part of a state; None before the first step."""
    return _core.safe_get_local_optimizer_state(_core_of(param), param, optim_state_key)


def safe_set_local_optimizer_state(param, value, optim_state_key):
    """Sets this rank's part of a state."""
    _core.safe_set_local_optimizer_state(_core_of(param), param, value, optim_state_key)


def safe_get_local_grad(param):
    """Returns this rank's part of the gradient."""
    return _core.safe_get_local_grad(_core_of(param), param)


def safe_set_local_grad(param, value):
    """Sets this rank's part of the gradient that step() will use."""
    _core.safe_set_local_grad(_core_of(param), param, value)
