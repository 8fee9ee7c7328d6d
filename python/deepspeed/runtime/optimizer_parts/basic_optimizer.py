"""Makes the optimizer below an engine's, of DeepSpeed's class for the config.

It is over the engine's groups. It shows class and options; arithmetic and state are the core's.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import torch

from deepspeed._config import offload_device

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def basic_class(config: Mapping[str, Any]) -> Any:
    """Returns the class for a config's section `optimizer`. Returns None without the section, or if only the core has its type."""
    section = config.get("optimizer")
    return _class_of(section, offload_device(config) != "none") if section else None


def make_basic(
    kind: Callable[..., torch.optim.Optimizer], config: Mapping[str, Any], groups: list[dict[str, Any]]
) -> torch.optim.Optimizer:
    """Constructs the class over the groups' own dicts."""
    section = config["optimizer"]
    accepted = inspect.signature(kind.__init__).parameters
    options = {key: _as_given(value) for key, value in (section.get("params") or {}).items() if key in accepted}
    for key in {"adam_w_mode", "adamw_mode"} & set(accepted):  # the argument's name in FusedAdam and DeepSpeedCPUAdam
        options[key] = _decouples(section)
    if "fp32_optimizer_states" in accepted and _keeps_moments_in_bf16(config):
        options["fp32_optimizer_states"] = False
    return kind(groups, **options)


def _class_of(section: Mapping[str, Any], on_cpu: bool) -> Any:
    from deepspeed.ops import adagrad, adam, lamb, lion

    name, params = section["type"].lower(), section.get("params") or {}
    if name in ("adam", "adamw"):
        if params.get("torch_adam"):
            return torch.optim.AdamW if _decouples(section) else torch.optim.Adam
        return adam.DeepSpeedCPUAdam if on_cpu else adam.FusedAdam
    of_cpu_or_device = {
        "adagrad": (adagrad.DeepSpeedCPUAdagrad, torch.optim.Adagrad),
        "lion": (lion.DeepSpeedCPULion, lion.FusedLion),
        "lamb": (lamb.FusedLamb, lamb.FusedLamb),
    }
    if name in of_cpu_or_device:
        return of_cpu_or_device[name][0 if on_cpu else 1]
    if name in ("onebitadam", "onebitlamb", "zerooneadam"):
        from deepspeed.runtime.fp16 import onebit

        kinds = {"onebitadam": onebit.OnebitAdam, "onebitlamb": onebit.OnebitLamb, "zerooneadam": onebit.ZeroOneAdam}
        return kinds[name]
    if name == "muon":
        from deepspeed.runtime.zero.muon.muon_optimizer import MuonWithAuxAdam

        return MuonWithAuxAdam
    return getattr(torch.optim, section["type"], None)


def _decouples(section: Mapping[str, Any]) -> bool:
    is_asked: bool = (section.get("params") or {}).get("adam_w_mode", True)
    return section["type"].lower() == "adamw" or is_asked


def _keeps_moments_in_bf16(config: Mapping[str, Any]) -> bool:
    section = config.get("bf16") or config.get("bfloat16") or {}
    return bool(section.get("bf16_optimizer_states"))


def _as_given(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value
