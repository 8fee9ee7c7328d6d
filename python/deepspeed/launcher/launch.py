"""Starts the ranks of one machine: python -m deepspeed.launcher.launch --world_info=... script arguments.

The runner starts it on each machine of a job of several ones. A rank that fails ends the others, and its exit code is the
launch's; SIGINT and SIGTERM end all ranks.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from deepspeed.accelerator import get_accelerator
from deepspeed.constants import CROSS_RANK, CROSS_SIZE, TORCH_DISTRIBUTED_DEFAULT_PORT
from deepspeed.launcher.resources import decode_world_info
from deepspeed.utils.logging import logger, set_log_level_from_string
from deepspeed.utils.numa import get_numactl_cmd

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PID_FILE_BASEPATH = "/tmp"
_GRACE_S = 30
_POLL_S = 0.1


def parse_args(args: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Starts the ranks of one machine.")
    parser.add_argument("--node_rank", type=int, default=0, help="this machine's number")
    parser.add_argument("--master_addr", type=str, default="127.0.0.1", help="the address of the first machine")
    parser.add_argument("--master_port", type=int, default=TORCH_DISTRIBUTED_DEFAULT_PORT, help="the port at which ranks meet")
    parser.add_argument("--world_info", type=str, default="None", help="{host: slots}, as JSON in base64")
    parser.add_argument("--job_id", type=str, default="", help="the word by which the command that ends the job finds this process")
    parser.add_argument("--module", action="store_true", help="the script is the name of a module, as for python -m")
    parser.add_argument("--no_python", action="store_true", help="run the script as the executable that it is")
    parser.add_argument("--no_local_rank", action="store_true", help="give the script no --local_rank argument")
    parser.add_argument("--enable_elastic_training", action="store_true", help="is not supported")
    parser.add_argument("--min_elastic_nodes", type=int, default=-1, help="is not supported")
    parser.add_argument("--max_elastic_nodes", type=int, default=-1, help="is not supported")
    parser.add_argument("--save_pid", type=int, default=0, help="the process id by which /tmp/<id>.deepspeed is named")
    parser.add_argument("--enable_each_rank_log", type=str, default="None", help="a folder for one log file a rank")
    parser.add_argument("--bind_cores_to_rank", action="store_true", help="give each rank its own share of the cores")
    parser.add_argument("--bind_core_list", type=str, default=None, help="the cores to share out, as 1,3-5,7")
    parser.add_argument("--log_level", type=str, default="info", help="the launcher's level")
    parser.add_argument("-q", "--quiet", action="store_true", help="as --log_level error")
    parser.add_argument("training_script", type=str)
    parser.add_argument("training_script_args", nargs=argparse.REMAINDER)
    return parser.parse_args(args=args)


def check_args(args: argparse.Namespace) -> None:
    """Raises for arguments that contradict each other, or that do not exist here."""
    if args.world_info == "None":
        raise ValueError("world_info can not be None")
    if args.no_python and args.module:
        raise ValueError("Don't use both the '--no_python' flag and the '--module' flag at the same time.")
    if args.enable_elastic_training:
        from deepspeed._errors import NotSupportedError

        raise NotSupportedError("--enable_elastic_training is not supported: start the run again with other machines")


def node_environment(args: argparse.Namespace, world: Mapping[str, Sequence[int]]) -> dict[str, str]:
    """Returns the variables that all ranks of this machine share."""
    slots = list(world.values())[args.node_rank]
    variables = dict(os.environ)
    get_accelerator().set_visible_devices_envs(variables, slots)
    variables["MASTER_ADDR"] = args.master_addr
    variables["MASTER_PORT"] = str(args.master_port)
    variables["WORLD_SIZE"] = str(sum(map(len, world.values())))
    variables[CROSS_RANK] = str(args.node_rank)
    variables[CROSS_SIZE] = str(len(world))
    variables["LOCAL_SIZE"] = str(len(slots))
    return variables


def rank_command(args: argparse.Namespace, local_rank: int, local_size: int) -> tuple[list[str], dict[str, str]]:
    """Returns (command, variables of it) of one rank."""
    binding: list[str] = []
    own: dict[str, str] = {}
    if args.bind_cores_to_rank or args.bind_core_list is not None:
        cores, binding = get_numactl_cmd(args.bind_core_list, local_size, local_rank)
        own["OMP_NUM_THREADS"] = str(cores)
    python = [] if args.no_python else [sys.executable, "-u"] + (["-m"] if args.module else [])
    place = [] if args.no_local_rank else [f"--local_rank={local_rank}"]
    return [*binding, *python, args.training_script, *place, *args.training_script_args], own


class Ranks:
    """Holds the processes of this machine's ranks."""

    def __init__(self, args: argparse.Namespace, world: Mapping[str, Sequence[int]]) -> None:
        slots = [len(of_node) for of_node in world.values()]
        self._first, self._count = sum(slots[: args.node_rank]), slots[args.node_rank]
        self._log_folder = None if args.enable_each_rank_log == "None" else args.enable_each_rank_log
        self._log_prefix = time.strftime("%Y%m%d%H%M%S")
        self._args, self._shared = args, node_environment(args, world)
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        for local_rank in range(self._count):
            command, own = rank_command(self._args, local_rank, self._count)
            place = {"RANK": str(self._first + local_rank), "LOCAL_RANK": str(local_rank)}
            self._start(command, {**self._shared, **own, **place})

    def _start(self, command: list[str], environment: dict[str, str]) -> None:
        output = None
        if self._log_folder is not None:
            os.makedirs(self._log_folder, exist_ok=True)
            output = open(os.path.join(self._log_folder, f"{self._log_prefix}_rank{environment['RANK']}.log"), "w")
        # A session of its own: what a rank starts ends with it.
        made = subprocess.Popen(command, env=environment, stdout=output, stderr=output, start_new_session=True)
        logger.info(f"process {made.pid} spawned with command: {command}")
        self.processes.append(made)

    def wait(self) -> int:
        """Returns 0 when all ranks ended with 0, else the exit code of the first that failed."""
        left = list(self.processes)
        while left:
            for process in [process for process in left if process.poll() is not None]:
                left.remove(process)
                if process.returncode != 0:
                    return process.returncode if process.returncode > 0 else 128 - process.returncode
            time.sleep(_POLL_S)
        return 0

    def end(self) -> None:
        """Ends all processes that live: SIGTERM, and SIGKILL to what is left after 30 seconds."""
        self._signal(signal.SIGTERM)
        until = time.monotonic() + _GRACE_S
        while time.monotonic() < until and any(process.poll() is None for process in self.processes):
            time.sleep(_POLL_S)
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        for process in self.processes:
            try:
                os.killpg(process.pid, number)
            except ProcessLookupError:
                continue


def main(args: Sequence[str] | None = None) -> None:
    given = parse_args(args)
    check_args(given)
    set_log_level_from_string("error" if given.quiet else given.log_level)
    pid_file = _write_pid(given.save_pid)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda signum, frame: sys.exit(128 + signum))
    ranks = Ranks(given, decode_world_info(given.world_info))
    try:
        ranks.start()
        code = ranks.wait()
        if code:
            logger.error(f"a rank of {given.training_script} exits with return code = {code}")
    finally:
        ranks.end()
        if pid_file is not None:
            os.remove(pid_file)
    sys.exit(code)


def _write_pid(main_pid: int) -> str | None:
    if not main_pid:
        return None
    path = os.path.join(PID_FILE_BASEPATH, f"{main_pid}.deepspeed")
    with open(path, "x") as file:
        file.write(str(os.getpid()))
    return path


if __name__ == "__main__":
    main()
