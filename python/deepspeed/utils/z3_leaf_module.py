"""Modules whose parameters stage 3 gathers as one, since ranks use different parts of them."""
from deepspeed._errors import UsageError


def z3_leaf_module(model):
    """Returns whether the module is marked."""
    return bool(getattr(model, "_z3_leaf", False))


def z3_leaf_parameter(model):
    """Returns whether the parameter is one of a marked module."""
    return hasattr(model, "ds_z3_leaf_module")


def get_z3_leaf_modules(model):
    """Returns the marked modules of a model."""
    return [module for module in model.modules() if z3_leaf_module(module)]


def set_z3_leaf_module(model, flag):
    """Marks a module, or takes its mark away."""
    model._z3_leaf = flag
    for param in model.parameters():
        if flag:
            param.ds_z3_leaf_module = model
        elif hasattr(param, "ds_z3_leaf_module"):
            del param.ds_z3_leaf_module


def _mark(model, fits, wanted, flag, raise_if_not_found):
    found = [module for name, module in model.named_modules() if fits(name, module)]
    if not found and raise_if_not_found:
        raise ValueError(f"No modules of {wanted} found in model {type(model).__name__}")
    for module in found:
        set_z3_leaf_module(module, flag)
    return found


def _fits_class(classes):
    types = tuple(kind for kind in classes if isinstance(kind, type))
    names = [kind for kind in classes if isinstance(kind, str)]
    if len(types) + len(names) != len(classes):
        raise UsageError("leaf_module_classes: expected classes and names of classes")

    def fits(_, module):
        kind = type(module)
        spellings = (kind.__name__, f"{kind.__module__}.{kind.__qualname__}")
        return isinstance(module, types) if types and isinstance(module, types) else any(name in spellings for name in names)

    return fits


def set_z3_leaf_modules(model, leaf_module_classes, raise_if_not_found=True):
    """Marks the modules of these classes, given as classes or by name; returns them."""
    return _mark(model, _fits_class(leaf_module_classes), leaf_module_classes, True, raise_if_not_found)


def unset_z3_leaf_modules(model, leaf_module_classes, raise_if_not_found=True):
    """Takes the marks of the modules of these classes away; returns them."""
    return _mark(model, _fits_class(leaf_module_classes), leaf_module_classes, False, raise_if_not_found)


def set_z3_leaf_modules_by_name(model, module_names, raise_if_not_found=True):
    """Marks modules by their names in the model; returns (modules, names that fit none)."""
    return _by_name(model, module_names, lambda name, wanted: name == wanted, raise_if_not_found)


def set_z3_leaf_modules_by_suffix(model, module_name_suffixes, raise_if_not_found=True):
    """Marks modules by the ends of their names; returns (modules, suffixes that fit none)."""
    return _by_name(model, module_name_suffixes, lambda name, wanted: name.endswith(wanted), raise_if_not_found)


def _by_name(model, names, fits, raise_if_not_found):
    found = _mark(model, lambda name, _: any(fits(name, wanted) for wanted in names), names, True, raise_if_not_found)
    given = [name for name, _ in model.named_modules()]
    missing = [wanted for wanted in names if not any(fits(name, wanted) for name in given)]
    return found, missing
