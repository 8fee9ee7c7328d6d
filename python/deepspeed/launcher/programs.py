"""Finds the engine's programs, and replaces this process by one of them."""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn


def path_of(name: str) -> str:
    """Returns the path of a program of this package."""
    return os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bin", name)


def run(name: str, words: Sequence[str], needs_torch: bool = False) -> NoReturn:
    """Replaces this process by the program."""
    program = path_of(name)
    os.environ.setdefault("PYTHON", sys.executable)  # the launcher runs scripts with it
    if needs_torch:
        _let_it_find_torch()
    os.execv(program, [program, *words])


def _let_it_find_torch() -> None:
    """Puts the folder of torch's libraries into the program's LD_LIBRARY_PATH.

    By itself the program only looks for torch next to this package.
    """
    torch = importlib.util.find_spec("torch")  # imports nothing
    if torch is None or not torch.submodule_search_locations:
        return
    folder = os.path.join(torch.submodule_search_locations[0], "lib")
    known = os.environ.get("LD_LIBRARY_PATH")
    os.environ["LD_LIBRARY_PATH"] = f"{known}{os.pathsep}{folder}" if known else folder
