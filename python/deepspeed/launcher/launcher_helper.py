"""Tells a rank that MPICH has started its place, and becomes the script."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

_RANKS = ("PMIX_RANK", "PMI_RANK")
_LOCAL_RANKS = ("PALS_LOCAL_RANKID", "MPI_LOCALRANKID")


def parse_args(args: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launcher", type=str, default="mpich", help="mpich")
    parser.add_argument("--module", action="store_true", help="the script is the name of a module")
    parser.add_argument("--no_python", action="store_true", help="run the script as the executable that it is")
    parser.add_argument("user_script", type=str)
    parser.add_argument("user_args", nargs=argparse.REMAINDER)
    return parser.parse_args(args=args)


def env_mapping(
    env: dict[str, str], rank_name_list: Sequence[str] = _RANKS, local_rank_name_list: Sequence[str] = _LOCAL_RANKS
) -> dict[str, str]:
    """Writes RANK and LOCAL_RANK from the launcher's variables. Raises EnvironmentError where they are missing or differ."""
    for name, sources in (("RANK", rank_name_list), ("LOCAL_RANK", local_rank_name_list)):
        values = {env[source] for source in sources if source in env}
        if len(values) != 1:
            raise OSError(f"{name}: got {sorted(values)} from {', '.join(sources)}, expected one number")
        env[name] = values.pop()
    return env


def main(args: Sequence[str] | None = None) -> NoReturn:
    given = parse_args(args)
    if given.launcher.lower() != "mpich":
        raise NotImplementedError(f"Unknown launcher {given.launcher}")
    python = [] if given.no_python else [sys.executable, "-u"] + (["-m"] if given.module else [])
    command = [*python, given.user_script, *given.user_args]
    os.execvpe(command[0], command, env_mapping(dict(os.environ)))


if __name__ == "__main__":
    main()
