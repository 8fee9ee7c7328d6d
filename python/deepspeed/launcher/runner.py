"""The launcher's front: one machine is the program `deepspeed`'s, several ones are pdsh's, MPI's or Slurm's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import OrderedDict
from typing import TYPE_CHECKING

from deepspeed.accelerator import get_accelerator
from deepspeed.launcher import programs
from deepspeed.launcher.arguments import DLTS_HOSTFILE, parse_args
from deepspeed.launcher.constants import (
    IMPI_LAUNCHER,
    MPICH_LAUNCHER,
    MVAPICH_LAUNCHER,
    OPENMPI_LAUNCHER,
    PDSH_LAUNCHER,
    PDSH_MAX_FAN_OUT as PDSH_MAX_FAN_OUT,
    SLURM_LAUNCHER,
)
from deepspeed.launcher.multinode_runner import (
    IMPIRunner,
    MPICHRunner,
    MVAPICHRunner,
    OpenMPIRunner,
    PDSHRunner,
    SlurmRunner,
    launch_flags,
)
from deepspeed.launcher.resources import (
    _parse_hostfile as _parse_hostfile,
    encode_world_info,
    fetch_hostfile,
    parse_inclusion_exclusion,
    parse_node_config as parse_node_config,
    parse_node_config_list as parse_node_config_list,
    parse_resource_filter as parse_resource_filter,
)
from deepspeed.utils.logging import logger, set_log_level_from_string

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping, Sequence
    from types import FrameType
    from typing import NoReturn

    from deepspeed.launcher.multinode_runner import MultiNodeRunner

EXPORT_ENVS = ["MLFLOW", "PYTHON", "MV2", "UCX"]
DEEPSPEED_ENVIRONMENT_NAME = os.getenv("DS_ENV_FILE", ".deepspeed_env")
DEEPSPEED_ENVIRONMENT_PATHS = [os.path.expanduser("~"), "."]
# Variables that each machine has its own value of, where the first one is set.
EXCLUDE_ENVS = {"AISC_JOB_NAME": ["NCCL_IB_HCA", "UCX_NET_DEVICES"]}

_SOURCES = (".c", ".cc", ".cpp", ".cxx", ".cu", ".h", ".hpp")

_RUNNERS: dict[str, Callable[[argparse.Namespace, str, Mapping[str, int | Sequence[int]]], MultiNodeRunner]] = {
    OPENMPI_LAUNCHER: OpenMPIRunner,
    MPICH_LAUNCHER: MPICHRunner,
    IMPI_LAUNCHER: IMPIRunner,
    SLURM_LAUNCHER: SlurmRunner,
    MVAPICH_LAUNCHER: MVAPICHRunner,
}


def main(args: Sequence[str] | None = None) -> None:
    """Launches the script: becomes the program `deepspeed` on one machine, and waits for the launcher of several ones."""
    words = list(sys.argv[1:] if args is None else args)
    if words and (words[0] in ("-h", "--version") or words[0].startswith("--help")):
        programs.run("deepspeed", words)
    given = parse_args(words)
    _check(given)
    if given.quiet:
        given.log_level = "error"
    set_log_level_from_string(given.log_level)
    pool = fetch_hostfile(given.hostfile) if os.path.isfile(given.hostfile) else None
    if not (given.force_multi or given.no_ssh or (pool and len(pool) > 1)):
        _run_here(given)
    active = active_resources(given, pool)
    if given.no_ssh:
        sys.exit(_run_node(given, active))
    if given.force_multi or len(active) > 1:
        sys.exit(_run_everywhere(given, pool or active, active))
    _run_here(given)


def _check(args: argparse.Namespace) -> None:
    from deepspeed._errors import NotSupportedError

    if (args.num_nodes >= 0 or args.num_gpus >= 0) and (args.include or args.exclude):
        raise ValueError("Cannot specify num_nodes/gpus with include/exclude")
    if args.elastic_training:
        raise NotSupportedError("--elastic_training is not supported: start the run again with another --num_procs")
    if not args.no_python and not args.module and args.user_script.endswith(_SOURCES):
        raise ValueError(f"{args.user_script} is a source file, no program: compile it, and start what that makes")
    if args.autotuning:
        raise NotSupportedError("--autotuning is not supported: set the batch sizes and the ZeRO stage in the config")


def active_resources(args: argparse.Namespace, pool: Mapping[str, int] | None) -> Mapping[str, Sequence[int]]:
    """Returns {host: slots} after filters and limits. pool: of the hostfile, None for this machine."""
    if not pool:
        if args.num_nodes > 1:
            raise ValueError("Num nodes is >1 but no extra nodes available via hostfile")
        pool = {"localhost": max(get_accelerator().device_count(), 1)}
        args.master_addr = args.master_addr or "127.0.0.1"
    active = parse_inclusion_exclusion(pool, args.include, args.exclude)
    if args.num_nodes > 0:
        active = OrderedDict(list(active.items())[: args.num_nodes])
    if args.num_gpus > 0:
        active = OrderedDict((host, list(range(args.num_gpus))) for host in active)
    return active


# --- one machine ---


def _run_here(args: argparse.Namespace) -> NoReturn:
    """Becomes the program, which starts and watches the ranks."""
    if args.venv_script is not None:
        from deepspeed._errors import NotSupportedError

        raise NotSupportedError("--venv_script is not supported on one machine: source it in the shell before")
    programs.run("deepspeed", program_words(args))


def program_words(args: argparse.Namespace) -> list[str]:
    """Returns the words of the program's command line."""
    values = {
        "hostfile": args.hostfile if args.hostfile != DLTS_HOSTFILE else None,
        "include": args.include or None,
        "exclude": args.exclude or None,
        "num_nodes": args.num_nodes if args.num_nodes >= 0 else None,
        "node_rank": args.node_rank if args.node_rank >= 0 else None,
        # The program means GPUs by --num_gpus; a rank on a CPU is one as well.
        "num_procs": args.num_gpus if args.num_gpus >= 0 else None,
        "master_addr": args.master_addr or None,
        "master_port": args.master_port if args.master_port != parse_args(["x"]).master_port else None,
        "stop_grace": args.stop_grace,
        "log_level": args.log_level if args.log_level != "info" else None,
    }
    words = [word for name, value in values.items() if value is not None for word in (f"--{name}", str(value))]
    flags = launch_flags(args)
    if args.save_pid:
        flags = [word for word in flags if word != str(os.getpid())]
    return [*words, *flags, args.user_script, *args.user_args]


# --- several machines ---


def _run_node(args: argparse.Namespace, active: Mapping[str, Sequence[int]]) -> int:
    """Starts the ranks of this machine, whose number --node_rank says."""
    if not 0 <= args.node_rank < len(active):
        raise ValueError("Launching training without ssh, but --node_rank is not set correctly.")
    where = [f"--world_info={encode_world_info(active)}", f"--node_rank={args.node_rank}"]
    where += [f"--master_addr={args.master_addr}", f"--master_port={args.master_port}", f"--log_level={args.log_level}"]
    command = [sys.executable, "-u", "-m", "deepspeed.launcher.launch", *where, *launch_flags(args)]
    return _wait(subprocess.Popen([*command, args.user_script, *args.user_args]))


def _run_everywhere(args: argparse.Namespace, pool: Mapping[str, int | Sequence[int]], active: Mapping[str, Sequence[int]]) -> int:
    _reach_first_machine(args, next(iter(active)))
    runner = _make_runner(args, pool, active)
    if not runner.backend_exists():
        raise RuntimeError(f"launcher '{args.launcher}' not installed.")
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (os.path.abspath("."), environment.get("PYTHONPATH"))))
    _add_exports(runner, environment)
    kill = None
    if isinstance(runner, PDSHRunner):
        made, kill, environment = runner.get_cmd(environment, active)
    else:
        made = runner.get_cmd(environment, active)
    logger.info(f"cmd = {runner.shown(made)}")
    return _wait(subprocess.Popen(made, env=environment), kill, environment)


def _make_runner(args: argparse.Namespace, pool: Mapping[str, int | Sequence[int]], active: Mapping[str, Sequence[int]]) -> MultiNodeRunner:
    args.launcher = args.launcher.lower()
    word = encode_world_info(active)
    if args.launcher == PDSH_LAUNCHER:
        return PDSHRunner(args, word)
    if args.launcher not in _RUNNERS:
        raise NotImplementedError(f"Unknown launcher {args.launcher}, expected {PDSH_LAUNCHER}, {', '.join(_RUNNERS)}")
    return _RUNNERS[args.launcher](args, word, pool)


def _reach_first_machine(args: argparse.Namespace, host: str) -> None:
    """Tries ssh, and asks the machine for its address where --master_addr does not say it."""
    ssh = ["ssh", "-o", "PasswordAuthentication=no"] + (["-p", str(args.ssh_port)] if args.ssh_port is not None else [])
    if not args.no_ssh_check and host != "localhost":
        quiet = subprocess.run([*ssh, "--", host, "hostname"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if quiet.returncode != 0:
            raise RuntimeError(
                f"Using hostfile at {args.hostfile} but host={host} was not reachable via ssh. If you are running with a "
                f"single node please remove {args.hostfile} or setup passwordless ssh."
            )
    if not args.master_addr:
        addresses = subprocess.check_output([*ssh, "--", host, "hostname", "-I"]).decode().split()
        if not addresses:
            raise RuntimeError(f"{host} tells no address by `hostname -I`; set one by --master_addr")
        args.master_addr = addresses[0]


def _add_exports(runner: MultiNodeRunner, environment: dict[str, str]) -> None:
    """Gives the ranks this shell's variables of the listed kinds, and those of the files .deepspeed_env."""
    excluded = [name for key, names in EXCLUDE_ENVS.items() if key in environment for name in names]
    kinds = tuple(EXPORT_ENVS + get_accelerator().export_envs())
    for name, value in environment.items():
        if name.startswith(kinds) and name not in excluded:
            runner.add_export(name, value)
    for folder in DEEPSPEED_ENVIRONMENT_PATHS:
        path = os.path.join(folder, DEEPSPEED_ENVIRONMENT_NAME)
        if os.path.isfile(path):
            _add_file(runner, path)


def _add_file(runner: MultiNodeRunner, path: str) -> None:
    logger.info(f"deepspeed_env file = {path}")
    with open(path) as file:
        for number, line in enumerate(map(str.strip, file), 1):
            if not line or line.startswith("#"):
                continue
            name, equals, value = line.partition("=")
            try:
                if not equals:
                    raise ValueError("expected KEY=VALUE")
                runner.add_export(name, value)
            except ValueError as error:
                raise ValueError(f"{path} line {number}: {error}") from None


def _wait(process: subprocess.Popen[bytes], kill: list[str] | None = None, environment: dict[str, str] | None = None) -> int:
    """Returns the exit code; SIGINT and SIGTERM are forwarded, and `kill` ends what the process left on other machines."""

    def forward(number: int, frame: FrameType | None) -> None:
        process.send_signal(number)
        if kill is not None:
            subprocess.run(kill, env=environment)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, forward)
    code = process.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    main()
