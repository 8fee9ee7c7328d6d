"""Defines the launcher's command line."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

DLTS_HOSTFILE = "/job/hostfile"
_LOG_LEVELS = ("debug", "info", "warning", "error", "critical")
_SPEC = "NAME[:SLOT[,SLOT ...]][@NAME...]"


def parse_args(args: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the flags before the script; all later words are the script's (user_args)."""
    parser = argparse.ArgumentParser(
        description="Starts a script once a rank, on this machine or on those of a hostfile.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    _add_resources(parser)
    _add_meeting(parser)
    _add_several_machines(parser)
    _add_program(parser)
    _add_run(parser)
    parser.add_argument("user_script", type=str, help="the script")
    parser.add_argument("user_args", nargs=argparse.REMAINDER, help="its arguments")
    return parser.parse_args(args=args)


def _add_resources(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-H", "--hostfile", type=str, default=DLTS_HOSTFILE, help="lines 'HOST slots=N'")
    parser.add_argument("-i", "--include", type=str, default="", help=f"hosts and slots to use: {_SPEC}")
    parser.add_argument("-e", "--exclude", type=str, default="", help=f"hosts and slots to leave out: {_SPEC}")
    parser.add_argument("--num_nodes", type=int, default=-1, help="the number of machines, from the top of the hostfile")
    parser.add_argument("--num_gpus", "--num_accelerators", "--num_procs", type=int, default=-1, help="the number of ranks on each machine")
    parser.add_argument("--min_elastic_nodes", type=int, default=-1, help="the fewest machines to go on with")
    parser.add_argument("--max_elastic_nodes", type=int, default=-1, help="the most machines to use at a time")
    parser.add_argument("--elastic_training", action="store_true", help="start again on the machines that are left after a loss")
    parser.add_argument("--max_restarts", type=int, default=-1, help="how often an elastic job starts again (100)")


def _add_meeting(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--master_port", type=int, default=None, help="the port at which ranks meet (29500, or a free one)")
    parser.add_argument("--master_addr", type=str, default="", help="the address of the first machine")
    parser.add_argument("--node_rank", type=int, default=-1, help="this machine's number, with --no_ssh")


def _add_several_machines(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--launcher", type=str, default=None, help="pdsh (or ssh, where it is missing), ssh, openmpi, mvapich, slurm, mpich or impi"
    )
    parser.add_argument("--launcher_args", type=str, default="", help="arguments of that launcher, as one word")
    parser.add_argument("--slurm_comment", type=str, default="", help="the comment of a Slurm job")
    parser.add_argument("--no_ssh", action="store_true", help="the command is run on each machine by somebody else")
    parser.add_argument("--no_ssh_check", action="store_true", help="do not try the machines by ssh before MPI's launcher starts")
    parser.add_argument("--force_multi", action="store_true", help="use the launcher of several machines for one as well")
    parser.add_argument("--ssh_port", type=int, default=None, help="the port of ssh")
    parser.add_argument("--venv_script", type=str, default=None, help="a script to source on each machine first")


def _add_program(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--module", action="store_true", help="the script is the name of a module, as for python -m")
    parser.add_argument("--no_python", action="store_true", help="run the script as the executable that it is")
    parser.add_argument("--no_local_rank", action="store_true", help="give the script no --local_rank argument")


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--save_pid", action="store_true", help="keep the launcher's process id in /tmp/<id>.deepspeed")
    parser.add_argument("--enable_each_rank_log", type=str, default="None", help="a folder for one log file a rank")
    parser.add_argument("--autotuning", type=str, default="", choices=["tune", "run"], help="is not supported")
    parser.add_argument("--bind_cores_to_rank", action="store_true", help="give each rank its own share of the cores")
    parser.add_argument("--bind_core_list", type=str, default=None, help="the cores to share out, as 1,3-5,7")
    parser.add_argument("--stop_grace", type=int, default=None, help="seconds between a forwarded signal and the ranks' end")
    parser.add_argument("--log_level", type=str, default="info", choices=_LOG_LEVELS, help="the launcher's level")
    parser.add_argument("-q", "--quiet", action="store_true", help="as --log_level error")
