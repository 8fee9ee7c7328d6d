"""The package's programs on the command line: each console script becomes the program of the engine."""

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


def deepspeed() -> None:
    """Starts a script once a rank and watches over the ranks; scripts run by the Python of this package."""
    from deepspeed.launcher import runner

    runner.main()


def zero_to_fp32() -> None:
    """Writes the fp32 weights of a checkpoint."""
    run("zero_to_fp32", sys.argv[1:], needs_torch=True)


def ds_to_universal() -> None:
    """Turns a checkpoint into a universal one."""
    run("ds_to_universal", sys.argv[1:], needs_torch=True)


def ds_bench() -> None:
    """Measures the collectives between ranks."""
    run("ds_bench", sys.argv[1:], needs_torch=True)


def ds_io() -> None:
    """Measures the disk of a folder."""
    run("ds_io", sys.argv[1:], needs_torch=True)


def ds_schedule() -> None:
    """Draws the schedule of a pipeline."""
    run("ds_schedule", sys.argv[1:])


def ds_elastic() -> None:
    """Shows the batch sizes that the section elasticity of a config chooses."""
    run("ds_elastic", sys.argv[1:])


def ds_ssh() -> None:
    """Runs a command on all hosts of a hostfile."""
    run("ds_ssh", sys.argv[1:])


def ds_report() -> None:
    """Prints what is installed and what works here."""
    from deepspeed.env_report import cli_main

    cli_main()
