"""What the engine's torch_autocast says about a parameter: the dtype in which ranks exchange it."""
import torch

LOWER_PRECISION_SAFE_MODULES = [torch.nn.Linear, torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d]
PARAM_COMM_DTYPE_ATTR_NAME = "comm_dtype"


def get_default_autocast_lower_precision_modules():
    return [f"{kind.__module__}.{kind.__name__}" for kind in LOWER_PRECISION_SAFE_MODULES]


def mark_parameters(module, dtype, names=None):
    """Notes the dtype on the parameters of modules that may compute in it; names: of classes, None for the usual ones."""
    wanted = set(names if names is not None else get_default_autocast_lower_precision_modules())
    for part in module.modules():
        kind = type(part)
        if f"{kind.__module__}.{kind.__name__}" in wanted or kind in _imported(wanted):
            for param in part.parameters(recurse=False):
                setattr(param, PARAM_COMM_DTYPE_ATTR_NAME, dtype)


def _imported(names):
    """Returns the classes of names under which a package shows classes that live in other modules."""
    import importlib

    found = set()
    for name in names:
        place, _, kind = name.rpartition(".")
        try:
            found.add(getattr(importlib.import_module(place), kind))
        except (ImportError, AttributeError, ValueError) as error:
            raise ValueError(f"torch_autocast.lower_precision_safe_modules: there is no class {name!r}: {error}") from None
    return found


def has_comm_dtype(param):
    return hasattr(param, PARAM_COMM_DTYPE_ATTR_NAME)


def get_comm_dtype(param):
    return getattr(param, PARAM_COMM_DTYPE_ATTR_NAME, param.dtype)
