"""Defines the errors of the engine.

DeepSpeed raises RuntimeError, AssertionError or ValueError, depending on the place, and clients catch these. Each error here is all
three.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

# How the core and a script spell the same name.
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
    """Replaces C++ names in a text of the core by Python's: zero.Init for zero::Init."""
    for pattern, word in _SPELLINGS:
        text = pattern.sub(word, text)
    return text


class DeepSpeedError(RuntimeError, AssertionError, ValueError):
    """Serves as the base class of all errors of the engine."""

    def __str__(self) -> str:
        return python_words(super().__str__())


class UsageError(DeepSpeedError):
    """Says that a call has a wrong argument, or comes in the wrong order or state."""


class ConfigError(DeepSpeedError):
    """Says that a config key is unknown, has a wrong value or contradicts another key."""


class NotSupportedError(DeepSpeedError, NotImplementedError):
    """Says that a config or a call needs a feature that does not exist here."""


class IoError(DeepSpeedError, OSError):
    """Says that a file or a disk cannot be read or written."""


class CheckpointError(DeepSpeedError, FileNotFoundError):
    """Says that a checkpoint is missing, damaged, altered or does not fit."""


class ZeRORuntimeException(CheckpointError, ConfigError):
    """Says that an optimizer does not fit the config, or that states do not load. The name is DeepSpeed's."""


class CommError(DeepSpeedError):
    """Says that a collective or a rendezvous failed or timed out."""


def not_supported(name: str, way_out: str) -> Callable[..., NoReturn]:
    """Makes a function that raises NotSupportedError when it is called.

    name: what the function stands for. way_out: what to use instead.
    """

    def refuse(*args: object, **kwargs: object) -> NoReturn:
        raise NotSupportedError(f"{name} is not supported: {way_out}")

    refuse.__name__ = refuse.__qualname__ = name.rsplit(".", 1)[-1]
    refuse.__doc__ = f"Raises NotSupportedError: {way_out}."
    return refuse


def not_supported_class(name: str, way_out: str, bases: tuple[type, ...] = ()) -> Any:
    """Makes a class that raises NotSupportedError when it is instantiated.

    name: what the class stands for. way_out: what to use instead.
    """

    def refuse(self: object, *args: object, **kwargs: object) -> NoReturn:
        raise NotSupportedError(f"{name} is not supported: {way_out}")

    return type(name.rsplit(".", 1)[-1], bases, {"__init__": refuse, "__doc__": f"Raises NotSupportedError: {way_out}."})
