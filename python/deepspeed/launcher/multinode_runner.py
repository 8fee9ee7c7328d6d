"""Makes the commands by which pdsh, MPI and Slurm start a job on several machines.

A command starts the program `ds_node` on each machine, or once for each rank. The launcher that runs it is the other end of its link. It
passes on the job's description by its environment, or by ssh. So no argument and no variable's value is on a command line.
"""

from __future__ import annotations

import re
import shutil
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from deepspeed import _core
from deepspeed.launcher import constants, programs
from deepspeed.launcher.resources import decode_world_info

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence
    from typing import Any

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class MultiNodeRunner(ABC):
    """Makes the command of one launcher. args: from the runner's parse_args(). world_info_base64: from encode_world_info()."""

    name = ""
    _probe = ""  # a program that exists if the launcher is installed

    def __init__(
        self, args: argparse.Namespace, world_info_base64: str, resource_pool: Mapping[str, int | Sequence[int]] | None = None
    ) -> None:
        self.args = args
        self.validate_args()
        self.user_arguments: list[str] = args.user_args
        self.user_script: str = args.user_script
        self.world_info_base64 = world_info_base64
        self.resource_pool = resource_pool
        self.exports: dict[str, str] = {}  # {name: value quoted for a shell}, as in DeepSpeed's runners
        self._values: dict[str, str] = {}  # {name: value}

    @abstractmethod
    def get_cmd(self, environment: dict[str, str], active_resources: Mapping[str, Sequence[int]]) -> Any:
        """Returns the command as a list of words, and adds its variables to the environment."""

    def backend_exists(self) -> bool | str | None:
        """Returns whether the launcher is installed."""
        return shutil.which(self._probe)

    def add_export(self, key: str, var: str) -> None:
        """Exports the variable to all ranks. Raises ValueError if the key is no valid name of a variable."""
        key, var = key.strip(), var.strip()
        if not _NAME.fullmatch(key):
            raise ValueError(f"variable {key!r}: expected a name of letters, digits and underscores that begins with no digit")
        plain = re.fullmatch(r"[\w@%+=:,./-]*", var, re.ASCII)
        self.exports[key] = var if plain else '"' + re.sub(r'([\\"$`])', r"\\\1", var) + '"'
        self._values[key] = var

    def parse_user_args(self) -> list[str]:
        return self.user_arguments

    def validate_args(self) -> None:
        """Raises ValueError for arguments that the launcher does not have."""
        from deepspeed.launcher.runner import program_words

        if self.name:  # otherwise the program has a launcher of its own
            _core.check_launch(program_words(self.args, launcher=self.name))

    def _command(self, environment: dict[str, str], active_resources: Mapping[str, int | Sequence[int]]) -> list[str]:
        hosts = [(host, list(range(slots)) if isinstance(slots, int) else list(slots)) for host, slots in active_resources.items()]
        command, variables = _core.runner_command(
            self.name,
            hosts or list(decode_world_info(self.world_info_base64).items()),
            self.args.launcher_args,
            programs.path_of("ds_node"),
            str(self.args.hostfile),
            sorted(self.exports),
            self.args.ssh_port,
            getattr(self.args, "slurm_comment", ""),
        )
        environment.update(variables)
        environment.update(self._values)
        return command


class PDSHRunner(MultiNodeRunner):
    """Starts one program on each machine over ssh, which starts the ranks there."""

    name = constants.PDSH_LAUNCHER
    _probe = "pdsh"

    def get_cmd(
        self, environment: dict[str, str], active_resources: Mapping[str, Sequence[int]]
    ) -> tuple[list[str], list[str], dict[str, str]]:
        """Returns (command, command that ends its processes, environment).

        The second is empty: programs end by themselves when their launcher is gone.
        """
        return self._command(environment, active_resources), [], environment


class _PoolRunner(MultiNodeRunner):
    """Makes the commands of launchers that place the ranks themselves. resource_pool: {host: number of slots, or slots}."""

    def get_cmd(self, environment: dict[str, str], active_resources: Mapping[str, Sequence[int]]) -> list[str]:
        return self._command(environment, self.resource_pool or active_resources)


class OpenMPIRunner(_PoolRunner):
    """Starts the ranks by Open MPI's mpirun."""

    name = constants.OPENMPI_LAUNCHER
    _probe = "ompi_info"


class MPICHRunner(_PoolRunner):
    """Starts the ranks by MPICH's mpirun."""

    name = constants.MPICH_LAUNCHER
    _probe = "mpirun"


class IMPIRunner(_PoolRunner):
    """Starts the ranks by Intel MPI's mpirun; each rank has its part of the command."""

    name = constants.IMPI_LAUNCHER
    _probe = "mpirun"


class SlurmRunner(_PoolRunner):
    """Starts the ranks by Slurm's srun."""

    name = constants.SLURM_LAUNCHER
    _probe = "srun"


class MVAPICHRunner(_PoolRunner):
    """Starts the ranks by MVAPICH2's mpirun."""

    name = constants.MVAPICH_LAUNCHER
    _probe = "mpiname"
