"""Starts the ranks of one machine, by the program `deepspeed`.

Usage: python -m deepspeed.launcher.launch --world_info=... script arguments
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from deepspeed.launcher import programs
from deepspeed.launcher.arguments import add_flags, flag_words

if TYPE_CHECKING:
    from collections.abc import Sequence

PID_FILE_BASEPATH = "/tmp"


def parse_args(args: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Starts the ranks of one machine.")
    add_flags(parser, without=("--no_ssh", "--save_pid"))
    parser.add_argument("--save_pid", type=int, default=0, help="keep this process's id in /tmp/<id>.deepspeed")
    parser.set_defaults(node_rank=0, master_addr="127.0.0.1", world_info="None")
    parser.add_argument("training_script", type=str)
    parser.add_argument("training_script_args", nargs=argparse.REMAINDER)
    return parser.parse_args(args=args)


def program_words(args: argparse.Namespace) -> list[str]:
    """Returns the arguments for the program. Raises ValueError without a world."""
    if args.world_info == "None":
        raise ValueError("world_info can not be None")
    return ["--no_ssh", *flag_words(args), "--", args.training_script, *args.training_script_args]


def main(args: Sequence[str] | None = None) -> None:
    programs.run("deepspeed", program_words(parse_args(args)))


if __name__ == "__main__":
    main()
