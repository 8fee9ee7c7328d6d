"""Marks modules whose parameters stage 3 gathers together, before their forward. Mixtures of experts need it."""

from __future__ import annotations

import types
import weakref
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

_leaf_of = torch.utils.weak.WeakIdKeyDictionary()  # weak references, for parameters of engines at stage 3


def z3_leaf_module(model: torch.nn.Module) -> bool:
    """Returns whether the module is marked as a leaf."""
    return bool(getattr(model, "_z3_leaf", False))


def z3_leaf_parameter(model: object) -> bool:
    """Returns whether the parameter belongs to a leaf of an engine at stage 3."""
    return hasattr(model, "ds_z3_leaf_module")


def leaf_module_of(param: torch.Tensor) -> torch.nn.Module:
    """Returns the marked module with which an engine gathers the parameter. Raises AttributeError if there is none."""
    leaf: torch.nn.Module | None = _leaf_of.get(param, lambda: None)()
    if leaf is None:
        raise AttributeError("ds_z3_leaf_module: the parameter is in no leaf module of an engine")
    return leaf


def note_leaf_modules(model: torch.nn.Module) -> None:
    """Records each parameter's outermost marked module, when an engine takes the model over."""
    for param in model.parameters():
        _leaf_of.pop(param, None)
    for leaf in get_z3_leaf_modules(model):  # from the outside in
        for param in leaf.parameters():
            _leaf_of.setdefault(param, weakref.ref(leaf))


def get_z3_leaf_modules(model: torch.nn.Module) -> list[torch.nn.Module]:
    """Returns the model's marked modules, itself included."""
    return [part for part in model.modules() if z3_leaf_module(part)]


def set_z3_leaf_module(model: torch.nn.Module, flag: bool) -> None:
    """Marks one module, or removes its mark."""
    model._z3_leaf = flag  # type: ignore[assignment]  # torch types an attribute that it does not know as a module


def set_z3_leaf_modules(
    model: torch.nn.Module, leaf_module_classes: Sequence[type | str], raise_if_not_found: bool = True
) -> list[torch.nn.Module]:
    """Marks modules of these classes (or class names) before initialize(). Returns them."""
    return _mark_classes(model, leaf_module_classes, True, raise_if_not_found)


def unset_z3_leaf_modules(
    model: torch.nn.Module, leaf_module_classes: Sequence[type | str], raise_if_not_found: bool = True
) -> list[torch.nn.Module]:
    """Removes the marks of these classes. Returns the modules."""
    return _mark_classes(model, leaf_module_classes, False, raise_if_not_found)


def set_z3_leaf_modules_by_name(
    model: torch.nn.Module, module_names: Sequence[str], flag: bool = True, raise_if_not_found: bool = True
) -> tuple[list[torch.nn.Module], list[str]]:
    """Marks modules by their whole names. Returns (modules, names that do not occur)."""
    parts = dict(model.named_modules())
    missing = [name for name in module_names if name not in parts]
    _require(not missing or not raise_if_not_found, f"No modules named {missing} found in model {model}")
    found = [parts[name] for name in module_names if name in parts]
    for part in found:
        set_z3_leaf_module(part, flag)
    return found, missing


def set_z3_leaf_modules_by_suffix(
    model: torch.nn.Module, module_name_suffixes: Sequence[str], flag: bool = True, raise_if_not_found: bool = True
) -> tuple[list[torch.nn.Module], list[str]]:
    """Marks modules by the suffixes of their names. Returns (modules, suffixes that do not occur)."""
    found, missing = {}, []
    for suffix in module_name_suffixes:
        matching = [part for name, part in model.named_modules() if name.endswith(suffix)]
        if not matching:
            missing.append(suffix)
        for part in matching:
            found[id(part)] = part
            set_z3_leaf_module(part, flag)
    _require(not missing or not raise_if_not_found, f"No modules matching suffixes {missing} found in model {model}")
    return list(found.values()), missing


def apply_zero_leaf_module_config(model: torch.nn.Module, leaf_cfg: Any) -> list[torch.nn.Module]:
    """Marks what the config's section `leaf_module` names. Returns the modules."""
    if leaf_cfg is None:
        return []
    found = set_z3_leaf_modules(model, leaf_cfg.classes, raise_if_not_found=False) if leaf_cfg.classes else []
    found = found + set_z3_leaf_modules_by_name(model, leaf_cfg.names, raise_if_not_found=False)[0]
    found = found + set_z3_leaf_modules_by_suffix(model, leaf_cfg.name_suffixes, raise_if_not_found=False)[0]
    return list({id(part): part for part in found}.values())


def mark_configured_leaf_modules(model: torch.nn.Module, config: Mapping[str, Any]) -> None:
    """Marks what zero_optimization.leaf_module of a config names, so that z3_leaf_module() tells it."""
    from deepspeed._config import stage_of

    zero = config.get("zero_optimization")
    section = zero.get("leaf_module") if isinstance(zero, dict) and stage_of(config) == 3 else None
    if isinstance(section, dict):
        names = {key: _as_list(section.get(key)) for key in ("classes", "names", "name_suffixes")}
        apply_zero_leaf_module_config(model, types.SimpleNamespace(**names))


def _as_list(given: str | Iterable[str] | None) -> list[str]:
    return [given] if isinstance(given, str) else list(given or ())


def _mark_classes(model: torch.nn.Module, classes: Sequence[type | str], flag: bool, raise_if_not_found: bool) -> list[torch.nn.Module]:
    assert all(isinstance(cls, (type, str)) for cls in classes), f"leaf_module_classes must be types or names, got {classes}"
    found = [part for part in model.modules() if any(_is_of(part, cls) for cls in classes)]
    for part in found:
        set_z3_leaf_module(part, flag)
    _require(found or not raise_if_not_found, f"No modules of type {classes} found in model {model}")
    return found


def _is_of(part: torch.nn.Module, cls: type | str) -> bool:
    if isinstance(cls, type):
        return isinstance(part, cls)
    own = type(part)
    return cls in (own.__name__, f"{own.__module__}.{own.__qualname__}")


def _require(condition: object, text: str) -> None:
    if not condition:
        raise ValueError(text)
