"""Turns a config, in any form that clients pass, into a dict that the core reads."""

from __future__ import annotations

import base64
import collections
import math
import os
import types
from collections.abc import Mapping
from typing import TYPE_CHECKING

from deepspeed import _core
from deepspeed._errors import ConfigError
from deepspeed.utils.logging import warning_on_rank_0

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import SimpleNamespace
    from typing import Any

_PREFETCH = "stage3_prefetch_bucket_size"
_MONITORS = ("tensorboard", "csv_monitor", "wandb", "comet")
_PLAIN = ("optimizer", "scheduler", "eigenvalue", "progressive_layer_drop")  # DeepSpeed ignores unknown keys in these sections


def dict_raise_error_on_duplicate_keys(ordered_pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Raises ValueError that names the keys which occur twice in one object. Is an object_pairs_hook for json.load."""
    counts = collections.Counter(key for key, _ in ordered_pairs)
    twice = [key for key, count in counts.items() if count > 1]
    if twice:
        raise ValueError(f"Duplicate keys in DeepSpeed config: {twice}")
    return dict(ordered_pairs)


def read_config(config: Any) -> Mapping[str, Any]:
    """Returns the dict of a config.

    It may be a dict or another mapping, a path, an open file, JSON text or base64 of it. The core parses the text.
    """
    if isinstance(config, Mapping):
        return config
    if hasattr(config, "read"):
        text = config.read()
        return _or_hjson(
            lambda: _core.parse_config(text, str(getattr(config, "name", "config"))),
            lambda: text.decode() if isinstance(text, bytes) else text,
        )
    given = os.fspath(config) if hasattr(config, "__fspath__") else config
    if not isinstance(given, str):
        raise ConfigError(f"config: got {type(config).__name__}, expected a dict, a path, JSON text or its base64")
    return _or_hjson(lambda: _core.find_config(os.fsencode(given)), lambda: _text_of(given))


load_ds_config = read_config  # DeepSpeed's name


def _or_hjson(read: Callable[[], Mapping[str, Any]], text_of: Callable[[], str]) -> Mapping[str, Any]:
    """Reads JSON with comments, as C++ programs do, or HJSON if its package is installed."""
    try:
        return read()
    except ConfigError as error:
        if "syntax error" not in str(error):
            raise
        try:
            import hjson
        except ImportError:
            raise ConfigError(f"{error}; if it is HJSON, install the package hjson") from None
        try:
            value = hjson.loads(text_of(), object_pairs_hook=dict_raise_error_on_duplicate_keys)
        except ValueError as fault:
            raise ConfigError(f"{error}; nor is it HJSON: {fault}") from None
        if not isinstance(value, Mapping):
            raise
        return value


def _text_of(given: str) -> str:
    if os.path.exists(given):
        with open(given) as file:
            return file.read()
    return given if given.lstrip().startswith("{") else base64.urlsafe_b64decode(given).decode()


def without_auto(config: Any) -> Any:
    """Leaves out values that are "auto", so that their defaults apply."""
    if isinstance(config, Mapping):
        return {key: without_auto(value) for key, value in config.items() if not _is_auto(value)}
    return config


def check_autos(config: Mapping[str, Any], sections: Sequence[str]) -> None:
    """Looks for arguments of optimizer and schedule that are still "auto".

    sections: those that the engine uses. Raises ConfigError for the optimizer's learning rate, and names other arguments in a warning.
    """
    for name in sections:
        section: Any = config.get(name)
        params: Any = section.get("params") if isinstance(section, Mapping) else None
        autos = [key for key, value in params.items() if _is_auto(value)] if isinstance(params, Mapping) else []
        if name == "optimizer" and "lr" in autos:
            raise ConfigError(
                'optimizer.params.lr: got "auto", expected a number: a client, as the Trainer of Transformers, puts its own there'
            )
        if autos:
            keys = ", ".join(f"{name}.params.{key}" for key in autos)
            warning_on_rank_0(f'config: no client has filled in the "auto" of {keys}: the default holds')


def for_core(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the config for the core, without "auto" values and unknown top-level keys."""
    known: dict[str, Any] = without_auto(config)
    for key in [key for key in known if key not in _core.config_keys()]:
        near = _core.nearest_config_key(key)
        warning_on_rank_0(f"config: the key {key!r} is unknown and ignored" + (f"; is {near!r} meant?" if near else ""))
        del known[key]
    made = _without_monitors(_with_whole_sizes(_without_further_keys(_with_stage_in_section(known))))
    return _without_token_batches(_without_idle_offload(made))


def stage_of(config: Mapping[str, Any]) -> int:
    """Returns the number of the ZeRO stage. Returns 0 for a value that the core will refuse. `true` in place of the section means 1."""
    zero = config.get("zero_optimization")
    stage = zero.get("stage", 0) if isinstance(zero, Mapping) else int(zero is True)
    if isinstance(stage, str) and stage.strip().isdecimal():
        stage = int(stage)
    return stage if isinstance(stage, int) else 0


def _with_stage_in_section(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Converts other accepted forms of the section `zero_optimization` and its stage."""
    zero, stage = config.get("zero_optimization"), stage_of(config)
    if isinstance(zero, bool):
        return {**config, "zero_optimization": {"stage": stage}}
    if isinstance(zero, Mapping) and isinstance(zero.get("stage"), str) and zero["stage"].strip().isdecimal():
        return {**config, "zero_optimization": {**zero, "stage": stage}}
    return config


def _without_monitors(config: Mapping[str, Any]) -> dict[str, Any]:
    """Turns the core's monitors off: those of this package write instead, CSV files included."""
    on = [name for name in _MONITORS if _is_on(config, name)]
    return {**config, **{name: {**config[name], "enabled": False} for name in on}}


def _is_on(config: Mapping[str, Any], name: str) -> bool:
    return isinstance(config.get(name), Mapping) and config[name].get("enabled") is True


def monitors_of(given: Mapping[str, Any], resolved: Mapping[str, Any]) -> SimpleNamespace:
    """Returns the monitors' sections as attributes, with defaults. `enabled` tells whether any monitor is on."""
    sections = {name: types.SimpleNamespace(**resolved[name]) for name in _MONITORS}
    for name, section in sections.items():
        section.enabled = _is_on(given, name)
    return types.SimpleNamespace(enabled=any(section.enabled for section in sections.values()), **sections)


def _without_further_keys(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Leaves out unknown keys in sections that DeepSpeed does not check."""
    for name in _PLAIN:
        section: Any = config.get(name)
        known = _core.config_keys(name)
        further = [key for key in section if key not in known] if isinstance(section, Mapping) else []
        if further:
            warning_on_rank_0(f"config: the section {name!r} has unknown keys, which are ignored: {', '.join(map(repr, further))}")
            config = {**config, name: {key: value for key, value in section.items() if key in known}}
    return config


def _without_idle_offload(config: dict[str, Any]) -> dict[str, Any]:
    """Leaves out offload sections that DeepSpeed ignores. These are offload_param below stage 3, and offload_optimizer at stage 0."""
    zero = config.get("zero_optimization")
    if not isinstance(zero, Mapping):
        return config
    for key, least in (("offload_param", 3), ("offload_optimizer", 1)):
        section, stage = zero.get(key), zero.get("stage", 0)
        if isinstance(section, Mapping) and section.get("device") not in (None, "none") and stage in range(least):
            warning_on_rank_0(f"config: zero_optimization.{key} has no effect at stage {stage}; it needs stage {least} at least")
            zero = {name: value for name, value in zero.items() if name != key}
    return {**config, "zero_optimization": zero}


def offload_device(config: Mapping[str, Any]) -> str:
    """Returns the device of the optimizer's states: "cpu", "nvme" or "none". The older key cpu_offload means "cpu"."""
    zero = config.get("zero_optimization") or {}
    section = zero.get("offload_optimizer")
    device: str | None = section.get("device") if isinstance(section, Mapping) else None
    if device is None or device == "none":
        return "cpu" if zero.get("cpu_offload") else "none"
    return device


def _without_token_batches(config: dict[str, Any]) -> dict[str, Any]:
    """Removes the key `enabled` of dynamic_batching: this package makes its loader and schedule itself."""
    data: Any = config.get("data_efficiency")
    sampling: Any = data.get("data_sampling") if isinstance(data, Mapping) else None
    batching = sampling.get("dynamic_batching") if isinstance(sampling, Mapping) else None
    if not isinstance(batching, Mapping) or batching.get("enabled") is not True:
        return config
    sampling = {**sampling, "enabled": False, "dynamic_batching": {**batching, "enabled": False}}
    return {**config, "data_efficiency": {**data, "enabled": False, "data_sampling": sampling}}


def _with_whole_sizes(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Rounds down sizes that older clients compute as fractions. 0.9 times the square of the hidden size need not be a whole number."""
    zero: Any = config.get("zero_optimization")
    size = zero.get(_PREFETCH) if isinstance(zero, Mapping) else None
    if not isinstance(size, float) or not math.isfinite(size):
        return config
    return {**config, "zero_optimization": {**zero, _PREFETCH: int(size)}}


def _is_auto(value: object) -> bool:
    return isinstance(value, str) and value == "auto"
