"""Becomes the program `deepspeed`, which starts and watches ranks on one or more machines."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from deepspeed import _core
from deepspeed.launcher import programs
from deepspeed.launcher.arguments import add_flags, flag_words
from deepspeed.launcher.constants import PDSH_MAX_FAN_OUT as PDSH_MAX_FAN_OUT
from deepspeed.launcher.resources import (
    _parse_hostfile as _parse_hostfile,
    encode_world_info as encode_world_info,
    fetch_hostfile as fetch_hostfile,
    parse_inclusion_exclusion as parse_inclusion_exclusion,
    parse_node_config as parse_node_config,
    parse_node_config_list as parse_node_config_list,
    parse_resource_filter as parse_resource_filter,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

EXPORT_ENVS = ["MLFLOW", "PYTHON", "MV2", "UCX"]
DEEPSPEED_ENVIRONMENT_NAME = os.getenv("DS_ENV_FILE", ".deepspeed_env")
DEEPSPEED_ENVIRONMENT_PATHS = [os.path.expanduser("~"), "."]

DLTS_HOSTFILE = "/job/hostfile"


def parse_args(args: Sequence[str] | None = None) -> argparse.Namespace:
    """Reads the flags up to the script; all words after it are the script's (user_args)."""
    parser = argparse.ArgumentParser(
        description="Starts a script once a rank, on this machine or on those of a hostfile.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add_flags(parser)
    parser.add_argument("user_script", type=str, help="the script")
    parser.add_argument("user_args", nargs=argparse.REMAINDER, help="its arguments")
    return parser.parse_args(args=args)


def main(args: Sequence[str] | str | None = None) -> None:
    """Becomes the program `deepspeed`, which runs scripts by this Python. Raises ValueError for wrong words in `args`; those of the
    command line are the program's to refuse."""
    words = args.split() if isinstance(args, str) else list(sys.argv[1:] if args is None else args)
    if args is not None:
        _core.check_launch(words)
    programs.run("deepspeed", words)


def program_words(args: argparse.Namespace, launcher: str | None = None) -> list[str]:
    """Returns the words of the program's command line. launcher: in place of that of the arguments."""
    chosen = [] if launcher is None else [f"--launcher={launcher}"]  # the last one counts
    return [*flag_words(args), *chosen, "--", args.user_script, *args.user_args]


if __name__ == "__main__":
    main()
