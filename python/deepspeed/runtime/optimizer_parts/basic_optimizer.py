"""The optimizer below an engine's: of the class that DeepSpeed makes for the config, over the engine's groups.

It shows the class and the options; its arithmetic and its state are the core's.
"""

import inspect

import torch

from deepspeed._config import offload_device


def basic_class(config):
    """Returns the class for a config's section `optimizer`; None where there is none, or the core alone knows its type."""
    section = config.get("optimizer")
    return _class_of(section, offload_device(config) != "none") if section else None


def make_basic(kind, config, groups):
    """Constructs the class over the groups' own dicts."""
    section = config["optimizer"]
    accepted = inspect.signature(kind.__init__).parameters
    options = {key: _as_given(value) for key, value in (section.get("params") or {}).items() if key in accepted}
    for key in {"adam_w_mode", "adamw_mode"} & set(accepted):  # FusedAdam's and DeepSpeedCPUAdam's name of it
        options[key] = _decouples(section)
    if "fp32_optimizer_states" in accepted and _keeps_moments_in_bf16(config):
        options["fp32_optimizer_states"] = False
    return kind(groups, **options)


def _class_of(section, on_cpu):
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


def _decouples(section):
    return section["type"].lower() == "adamw" or (section.get("params") or {}).get("adam_w_mode", True)


def _keeps_moments_in_bf16(config):
    section = config.get("bf16") or config.get("bfloat16") or {}
    return bool(section.get("bf16_optimizer_states"))


def _as_given(value):
    return tuple(value) if isinstance(value, list) else value
