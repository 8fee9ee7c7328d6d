"""The programs of the engine, and how this process becomes one of them."""

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
    """Becomes the program."""
    program = path_of(name)
    os.environ.setdefault("PYTHON", sys.executable)  # by which the launcher runs scripts
    if needs_torch:
        _let_it_find_torch()
    os.execv(program, [program, *words])


def _let_it_find_torch() -> None:
    """Names the folder of torch's libraries to the program, which looks for torch beside this package alone."""
    torch = importlib.util.find_spec("torch")  # imports nothing
    if torch is None or not torch.submodule_search_locations:
        return
    folder = os.path.join(torch.submodule_search_locations[0], "lib")
    known = os.environ.get("LD_LIBRARY_PATH")
    os.environ["LD_LIBRARY_PATH"] = f"{known}{os.pathsep}{folder}" if known else folder
