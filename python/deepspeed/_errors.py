"""Errors of the engine.

Clients of DeepSpeed catch RuntimeError, AssertionError or ValueError, whichever DeepSpeed raises at the place:
each error here is all of them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

# How the core spells what this package has as well, and how a script does.
_SPELLINGS = (
    (re.compile(r"\b(deepspeed|zero|torch|optim|nn|checkpointing|pipe|Engine|Module|GatheredParameters)::(?=\w)"), r"\1."),
    (re.compile(r"\(\{\.(\w+) = ([^{}]*)\}\)"), lambda found: f"({found[1]}={_literal(found[2])})"),
    (re.compile(r"\b(model|engine)->"), r"\1."),
    (re.compile(r"\b(enabled|keep_partitioned) = (true|false)"), lambda found: f"{found[1]}={_literal(found[2])}"),
    (re.compile(r"\bzero\.MiCSInit\b"), "zero.MiCS_Init"),
    (re.compile(r"\bzero\.ParameterAccess or (?=zero\.)"), ""),
    (re.compile(r"\bload_weights\(\)"), "zero.GatheredParameters(..., modifier_rank=0)"),
)


def _literal(text: str) -> str:
    return {"true": "True", "false": "False"}.get(text, text)


def python_words(text: str) -> str:
    """Spells names in a text of the core as scripts do: zero.Init for zero::Init."""
    for pattern, word in _SPELLINGS:
        text = pattern.sub(word, text)
    return text


class DeepSpeedError(RuntimeError, AssertionError, ValueError):
    """The base of all errors of the engine."""

    def __str__(self) -> str:
        return python_words(super().__str__())


class UsageError(DeepSpeedError):
    """A call had a wrong argument, or came in the wrong order or state."""


class ConfigError(DeepSpeedError):
    """A key of the config is unknown, has a wrong value or contradicts another one."""


class NotSupportedError(DeepSpeedError, NotImplementedError):
    """A config or a call asks for a feature that does not exist here."""


class IoError(DeepSpeedError, OSError):
    """A file or a disk cannot be read or written."""


class CheckpointError(DeepSpeedError, FileNotFoundError):
    """A checkpoint is missing, torn, altered or does not fit."""


class ZeRORuntimeException(CheckpointError, ConfigError):
    """An optimizer does not fit the config, or states do not load: DeepSpeed's name."""


class CommError(DeepSpeedError):
    """A collective or a rendezvous failed or timed out."""


def not_supported(name: str, way_out: str) -> Callable[..., NoReturn]:
    """Makes a function that stands for the name and raises NotSupportedError when it is called."""

    def refuse(*args: object, **kwargs: object) -> NoReturn:
        raise NotSupportedError(f"{name} is not supported: {way_out}")

    refuse.__name__ = refuse.__qualname__ = name.rsplit(".", 1)[-1]
    refuse.__doc__ = f"Raises NotSupportedError: {way_out}."
    return refuse


def not_supported_class(name: str, way_out: str, bases: tuple[type, ...] = ()) -> Any:
    """Makes a class that stands for the name and raises NotSupportedError when it is instantiated."""

    def refuse(self: object, *args: object, **kwargs: object) -> NoReturn:
        raise NotSupportedError(f"{name} is not supported: {way_out}")

    return type(name.rsplit(".", 1)[-1], bases, {"__init__": refuse, "__doc__": f"Raises NotSupportedError: {way_out}."})
