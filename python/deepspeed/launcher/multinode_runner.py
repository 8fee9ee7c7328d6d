"""Commands by which pdsh, MPI and Slurm start a job on several machines."""

from __future__ import annotations

import atexit
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import warnings
from abc import ABC, abstractmethod
from shlex import split
from typing import TYPE_CHECKING

from deepspeed.accelerator import get_accelerator
from deepspeed.launcher.constants import PDSH_MAX_FAN_OUT
from deepspeed.launcher.resources import check_host
from deepspeed.utils.logging import logger
from deepspeed.utils.numa import get_numactl_cmd

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence
    from typing import Any

_PLAIN = re.compile(r"[\w@%+=:,./-]+", re.ASCII)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def shell_word(text: str) -> str:
    """Returns what a POSIX shell reads as one word that is the text, whatever characters it has."""
    return text if _PLAIN.fullmatch(text) else '"' + re.sub(r'([\\"$`])', r"\\\1", text) + '"'


class MultiNodeRunner(ABC):
    """Makes the command of one launcher. args: of the runner's parse_args(); world_info_base64: of encode_world_info()."""

    def __init__(self, args: argparse.Namespace, world_info_base64: str) -> None:
        self.args = args
        self.validate_args()
        self.user_arguments = self.parse_user_args()
        self.user_script = args.user_script
        self.world_info_base64 = world_info_base64
        self.exports: dict[str, str] = {}  # {name: value as a word of a shell}
        self._values: dict[str, str] = {}  # {name: value as it stands}

    @abstractmethod
    def backend_exists(self) -> bool | str | None:
        """Returns whether the launcher is installed."""

    @abstractmethod
    def get_cmd(self, environment: dict[str, str], active_resources: Mapping[str, Sequence[int]]) -> Any:
        """Returns the command as a list of words."""

    def add_export(self, key: str, var: str) -> None:
        """Gives the variable to all ranks. Raises ValueError for a key that is no name of a variable."""
        key, var = key.strip(), var.strip()
        if not _NAME.fullmatch(key):
            raise ValueError(f"variable {key!r}: expected a name of letters, digits and underscores that begins with no digit")
        self.exports[key], self._values[key] = shell_word(var), var

    def shown(self, command: list[str]) -> str:
        """Returns the command for the log, without the values of the variables."""
        return " ".join(map(shell_word, command))

    def parse_user_args(self) -> list[str]:
        words: list[str] = self.args.user_args
        return words

    @property
    def name(self) -> str:
        return type(self).__name__

    def validate_args(self) -> None:
        """Raises ValueError for arguments that the launcher does not have."""


class PDSHRunner(MultiNodeRunner):
    """Starts deepspeed.launcher.launch on each machine over ssh; it starts the ranks there."""

    @property
    def name(self) -> str:
        return "pdsh"

    def backend_exists(self) -> bool | str | None:
        return shutil.which("pdsh")

    def parse_user_args(self) -> list[str]:
        """Quotes arguments, since a shell on the other machine reads the line."""
        return [shell_word(word) for word in self.args.user_args]

    def get_cmd(
        self, environment: dict[str, str], active_resources: Mapping[str, Sequence[int]]
    ) -> tuple[list[str], list[str], dict[str, str]]:
        """Returns (command, the command that ends what it has started, environment)."""
        args = self.args
        environment["PDSH_RCMD_TYPE"] = "ssh"
        if args.ssh_port is not None:
            environment["PDSH_SSH_ARGS_APPEND"] = f"{environment.get('PDSH_SSH_ARGS_APPEND', '')} -p {args.ssh_port}"
        for host in active_resources:
            check_host(host)
        workers = ",".join(active_resources)
        logger.info(f"Running on the following workers: {workers}")
        pdsh = ["pdsh", "-S", "-f", str(PDSH_MAX_FAN_OUT), "-w", workers, *split(args.launcher_args)]
        # In the command that ends the job, its id is another text than in the lines of the shells: it finds the launches alone.
        job = secrets.token_hex(8)
        kill = [*pdsh, "pkill", "-f", f'"job_id=[{job[0]}]{job[1:]}"']
        python = [sys.executable, "-u", "-m", "deepspeed.launcher.launch"]
        places = [f"--world_info={self.world_info_base64}", f"--master_addr={args.master_addr}", f"--master_port={args.master_port}"]
        words = [*python, *places, *launch_flags(args), self.user_script]
        start = ["exec", *map(shell_word, words[:4]), f'--job_id="{job}"', *map(shell_word, words[4:]), *self.user_arguments]
        # pdsh writes the machine's number in place of %n, and % in place of %%.
        line = [word.replace("%", "%%") for word in [*self._preparations(), *start]]
        line.insert(line.index("deepspeed.launcher.launch") + 1, "--node_rank=%n")
        return [*pdsh, *line], kill, environment

    def _preparations(self) -> list[str]:
        """Returns the shell's commands before the launch."""
        script = self.args.venv_script
        sourced = [] if script is None else [f". {'~/' + shell_word(script[2:]) if script.startswith('~/') else shell_word(script)};"]
        return [*sourced, *[f"export {key}={word};" for key, word in self.exports.items()], f"cd {shell_word(os.path.abspath('.'))};"]

    def shown(self, command: list[str]) -> str:
        return " ".join(f"{word.partition('=')[0]}=...;" if word.startswith("export ") else word for word in command)


def launch_flags(args: argparse.Namespace) -> list[str]:
    """Returns the flags that the runner hands on to deepspeed.launcher.launch."""
    flags = [f"--{name}" for name in ("no_python", "module", "no_local_rank") if getattr(args, name)]
    if args.save_pid:
        flags += ["--save_pid", str(os.getpid())]
    if args.enable_each_rank_log != "None":
        flags.append(f"--enable_each_rank_log={args.enable_each_rank_log}")
    if args.bind_cores_to_rank:
        flags.append("--bind_cores_to_rank")
    if args.bind_core_list is not None:
        flags.append(f"--bind_core_list={args.bind_core_list}")
    return flags


class _PoolRunner(MultiNodeRunner):
    """Makes the commands of launchers that place the ranks themselves. resource_pool: {host: number of slots, or slots}."""

    _probe = ""  # a program that is there where the launcher is

    def __init__(self, args: argparse.Namespace, world_info_base64: str, resource_pool: Mapping[str, int | Sequence[int]]) -> None:
        super().__init__(args, world_info_base64)
        for host in resource_pool:
            check_host(host)
        self.resource_pool = resource_pool

    def backend_exists(self) -> bool | str | None:
        return shutil.which(self._probe)

    def _slots(self) -> list[int]:
        return [slots if isinstance(slots, int) else len(slots) for slots in self.resource_pool.values()]

    def _slots_of_each(self) -> int:
        """Returns the number of slots, which all machines must have alike."""
        counts = set(self._slots())
        if len(counts) != 1:
            raise ValueError(f"{self.name} requires the same number of devices on each node, got {self._slots()}")
        return counts.pop()

    def _python(self) -> list[str]:
        if self.args.no_python:
            return []
        return [sys.executable, "-u"] + (["-m"] if self.args.module else [])

    def _program(self) -> list[str]:
        return [*self._python(), self.user_script, *self.user_arguments]

    def _give(self, environment: dict[str, str]) -> None:
        """Gives the variables to the launcher itself, which hands them on: its command line, which others see, has no value."""
        environment.update(self._values)

    def _meeting(self, flag: str) -> list[str]:
        """Returns the variables of the meeting point, each after the flag."""
        each = self._slots_of_each()
        variables = (
            ("MASTER_ADDR", self.args.master_addr),
            ("MASTER_PORT", self.args.master_port),
            ("WORLD_SIZE", sum(self._slots())),
            ("LOCAL_SIZE", each),
        )
        return [word for key, value in variables for word in (flag, key, str(value))]


class _MpiRunner(_PoolRunner):
    """Makes the commands of the launchers of MPI, which take whole machines alone."""

    def validate_args(self) -> None:
        if self.args.include or self.args.exclude:
            raise ValueError(f"{self.name} backend does not support worker include/exclusion")
        if self.args.num_nodes != -1 or self.args.num_gpus != -1:
            raise ValueError(f"{self.name} backend does not support limiting num nodes/gpus")


class OpenMPIRunner(_MpiRunner):
    """Starts the ranks by Open MPI's mpirun."""

    _probe = "ompi_info"

    def __init__(self, args: argparse.Namespace, world_info_base64: str, resource_pool: Mapping[str, int | Sequence[int]]) -> None:
        super().__init__(args, world_info_base64, resource_pool)
        self.add_export("UCX_TLS", "tcp")

    @property
    def name(self) -> str:
        return "openmpi"

    def get_cmd(self, environment: dict[str, str], active_resources: Mapping[str, Sequence[int]]) -> list[str]:
        given = split(self.args.launcher_args)
        chooses_interface = any(word in ("-mca", "--mca") and key == "btl_tcp_if_include" for word, key in zip(given, given[1:]))
        interface = [] if chooses_interface else ["--mca", "btl_tcp_if_include", "eth0"]
        command = ["mpirun", "-n", str(sum(self._slots())), "-hostfile", str(self.args.hostfile), "--mca", "btl", "^openib"]
        self._give(environment)
        exports = [word for key in self.exports for word in ("-x", key)]
        return [*command, *interface, *given, *exports, *self._program()]


class MPICHRunner(_MpiRunner):
    """Starts the ranks by MPICH's mpirun, through a helper that tells them their places."""

    _probe = "mpirun"

    @property
    def name(self) -> str:
        return "mpich"

    def get_cmd(self, environment: dict[str, str], active_resources: Mapping[str, Sequence[int]]) -> list[str]:
        each = self._slots_of_each()
        command = ["mpirun", "-n", str(sum(self._slots())), "-ppn", str(each), *split(self.args.launcher_args)]
        self._give(environment)
        hosts = ["-hosts", ",".join(self.resource_pool)]
        helper = [os.path.join(os.path.dirname(os.path.realpath(__file__)), "launcher_helper.py")]
        flags = ["--launcher", self.args.launcher]
        flags += [f"--{name}" for name in ("module", "no_python") if getattr(self.args, name)]
        start = [sys.executable, "-u", *helper, *flags, self.user_script, *self.user_arguments]
        return [*command, "-genvall", *self._meeting("-genv"), *hosts, *start]


class IMPIRunner(_MpiRunner):
    """Starts the ranks by Intel MPI's mpirun, one part of the command a rank."""

    _probe = "mpirun"

    @property
    def name(self) -> str:
        return "impi"

    def get_cmd(self, environment: dict[str, str], active_resources: Mapping[str, Sequence[int]]) -> list[str]:
        args, each = self.args, self._slots_of_each()
        self._give(environment)
        exports = ["-genvall"]
        if args.bind_cores_to_rank:
            cores, _ = get_numactl_cmd(args.bind_core_list, each, 0)
            exports += ["-genv", "OMP_NUM_THREADS", str(cores)]
        # The launcher binds cores itself, so Intel MPI must not.
        pinning = ["-genv", "I_MPI_PIN", "0"]
        command = ["mpirun", "-ppn", str(each), *split(args.launcher_args), *exports, *self._meeting("-genv"), *pinning]
        command += ["-hosts", ",".join(self.resource_pool)]
        for rank in range(sum(self._slots())):
            command += ([":"] if rank else []) + self._part_of(rank, rank % each, each)
        return command

    def _part_of(self, rank: int, local_rank: int, local_size: int) -> list[str]:
        binding: list[str] = []
        if self.args.bind_cores_to_rank:
            _, binding = get_numactl_cmd(self.args.bind_core_list, local_size, local_rank)
        place = ["-n", "1", "-env", "RANK", str(rank), "-env", "LOCAL_RANK", str(local_rank)]
        return [*place, *binding, *self._program()]


class SlurmRunner(_PoolRunner):
    """Starts the ranks by Slurm's srun."""

    _probe = "sinfo"

    @property
    def name(self) -> str:
        return "slurm"

    def get_cmd(self, environment: dict[str, str], active_resources: Mapping[str, Sequence[int]]) -> list[str]:
        args = self.args
        command = ["srun", "-n", str(sum(self._slots())), *split(args.launcher_args)]
        given = (
            ("--comment", getattr(args, "slurm_comment", "")),
            ("--include", args.include),
            ("--exclude", args.exclude),
            ("--nodes", max(args.num_nodes, 0)),
            ("--gpus", max(args.num_gpus, 0)),
        )
        command += [str(word) for flag, value in given if value for word in (flag, value)]
        self._give(environment)
        return [*command, "--export=ALL", *self._program()]


class MVAPICHRunner(_MpiRunner):
    """Starts the ranks by MVAPICH2-GDR's mpirun."""

    _settings = {
        "MV2_SMP_USE_CMA": "0",
        "MV2_DEBUG_SHOW_BACKTRACE": "1",
        "MV2_SUPPORT_DL": "1",
        "MV2_ENABLE_AFFINITY": "0",
        "MV2_INTER_ALLGATHER_TUNING": "5",
        "MV2_CUDA_USE_NAIVE": "0",
    }

    def __init__(self, args: argparse.Namespace, world_info_base64: str, resource_pool: Mapping[str, int | Sequence[int]]) -> None:
        super().__init__(args, world_info_base64, resource_pool)
        for key, value in self._settings.items():
            self.add_export(key, value)
        if get_accelerator().device_name() == "cuda":
            self.add_export("MV2_USE_CUDA", "1")

    @property
    def name(self) -> str:
        return "mvapich"

    def backend_exists(self) -> bool | str | None:
        if not shutil.which("mpiname"):
            warnings.warn("mpiname does not exist, mvapich is not installed properly", stacklevel=2)
            return False
        found = subprocess.check_output(["mpiname"]).decode().strip()
        if "MVAPICH2-GDR" not in found:
            warnings.warn(f"Expected MVAPICH2-GDR as return for mpiname but received {found}", stacklevel=2)
            return False
        return True

    def get_cmd(self, environment: dict[str, str], active_resources: Mapping[str, Sequence[int]]) -> list[str]:
        each = self._slots_of_each()
        self._give(environment)
        handle, hostfile = tempfile.mkstemp(prefix="deepspeed_hosts_")
        atexit.register(os.remove, hostfile)
        with open(handle, "w") as file:
            file.writelines(f"{host}\n" for host in self.resource_pool)
        command = ["mpirun", "-np", str(sum(self._slots())), "-ppn", str(each), "--hostfile", hostfile]
        return [*command, *split(self.args.launcher_args), "-genvall", *self._program()]
