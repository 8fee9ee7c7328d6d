"""Starts the ranks of one machine, by the program `deepspeed`.

Usage: python -m deepspeed.launcher.launch --world_info=... script arguments
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from deepspeed.launcher import programs

if TYPE_CHECKING:
    from collections.abc import Sequence

PID_FILE_BASEPATH = "/tmp"
_FLAGS = ("module", "no_python", "no_local_rank", "bind_cores_to_rank")


def parse_args(args: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Starts the ranks of one machine.")
    parser.add_argument("--node_rank", type=int, default=0, help="this machine's number")
    parser.add_argument("--master_addr", type=str, default="127.0.0.1", help="the address of the first machine")
    parser.add_argument("--master_port", type=int, default=None, help="the port at which ranks meet (29500)")
    parser.add_argument("--world_info", type=str, default="None", help="{host: slots}, as JSON in base64")
    parser.add_argument("--module", action="store_true", help="the script is the name of a module, as for python -m")
    parser.add_argument("--no_python", action="store_true", help="run the script as the executable that it is")
    parser.add_argument("--no_local_rank", action="store_true", help="give the script no --local_rank argument")
    parser.add_argument("--save_pid", type=int, default=0, help="keep this process's id in /tmp/<id>.deepspeed")
    parser.add_argument("--enable_each_rank_log", type=str, default="None", help="a folder for one log file a rank")
    parser.add_argument("--bind_cores_to_rank", action="store_true", help="give each rank its own share of the cores")
    parser.add_argument("--bind_core_list", type=str, default=None, help="the cores to share out, as 1,3-5,7")
    parser.add_argument("--log_level", type=str, default="info", help="the launcher's level")
    parser.add_argument("-q", "--quiet", action="store_true", help="as --log_level error")
    parser.add_argument("training_script", type=str)
    parser.add_argument("training_script_args", nargs=argparse.REMAINDER)
    return parser.parse_args(args=args)


def program_words(args: argparse.Namespace) -> list[str]:
    """Returns the arguments for the program. Raises ValueError without a world."""
    if args.world_info == "None":
        raise ValueError("world_info can not be None")
    words = ["--no_ssh", f"--world_info={args.world_info}", f"--node_rank={args.node_rank}", f"--master_addr={args.master_addr}"]
    words += [f"--{name}" for name in _FLAGS if getattr(args, name)] + (["--save_pid"] if args.save_pid else [])
    if args.master_port is not None:
        words.append(f"--master_port={args.master_port}")
    if args.enable_each_rank_log != "None":
        words.append(f"--enable_each_rank_log={args.enable_each_rank_log}")
    if args.bind_core_list is not None:
        words.append(f"--bind_core_list={args.bind_core_list}")
    words.append(f"--log_level={'error' if args.quiet else args.log_level}")
    return [*words, "--", args.training_script, *args.training_script_args]


def main(args: Sequence[str] | None = None) -> None:
    programs.run("deepspeed", program_words(parse_args(args)))


if __name__ == "__main__":
    main()
