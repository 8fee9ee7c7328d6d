"""The flags of the program `deepspeed`, as argparse reads them and as words of its command line."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from deepspeed import _core

if TYPE_CHECKING:
    from collections.abc import Collection


def add_flags(parser: argparse.ArgumentParser, without: Collection[str] = ()) -> None:
    """Adds the flags of the program to a parser, but for those named."""
    for names, kind, default, text in _core.launch_flags():
        if names[0] in without:
            continue
        text = text or argparse.SUPPRESS
        if kind == "switch":
            parser.add_argument(*names, action="store_true", help=text)
        elif kind == "number":
            parser.add_argument(*names, type=int, default=int(default) if default else None, help=text)
        else:
            parser.add_argument(*names, type=str, default=default, help=text)


def flag_words(args: argparse.Namespace) -> list[str]:
    """Returns the flags of the program that have other values than their defaults."""
    words = []
    for names, kind, default, _ in _core.launch_flags():
        value = getattr(args, names[0].lstrip("-"), None)
        if kind == "switch":
            words += [names[0]] if value else []
        elif value is not None and str(value) != default:
            words.append(f"{names[0]}={value}")
    return words
