"""Commands by which pdsh, MPI and Slurm start a job on several machines."""
import os
import re
import shutil
import subprocess
import sys
import warnings
from abc import ABC, abstractmethod
from shlex import split

from deepspeed.accelerator import get_accelerator
from deepspeed.launcher.constants import MVAPICH_TMP_HOSTFILE, PDSH_MAX_FAN_OUT
from deepspeed.utils.logging import logger
from deepspeed.utils.numa import get_numactl_cmd

_PLAIN = re.compile(r"[\w@%+=:,./-]*")


class MultiNodeRunner(ABC):
    """Makes the command of one launcher. args: of the runner's parse_args(); world_info_base64: of encode_world_info()."""

    def __init__(self, args, world_info_base64):
        self.args = args
        self.validate_args()
        self.user_arguments = self.parse_user_args()
        self.user_script = args.user_script
        self.world_info_base64 = world_info_base64
        self.exports = {}

    @abstractmethod
    def backend_exists(self):
        """Returns whether the launcher is installed."""

    @abstractmethod
    def get_cmd(self, environment, active_resources):
        """Returns the command as a list of words."""

    def add_export(self, key, var):
        """Gives the variable to all ranks; a value that a shell would read otherwise is quoted."""
        var = var.strip()
        self.exports[key.strip()] = var if _PLAIN.fullmatch(var) else f'"{var}"'

    def parse_user_args(self):
        return self.args.user_args

    @property
    def name(self):
        return type(self).__name__

    def validate_args(self):
        """Raises ValueError for arguments that the launcher does not have."""


class PDSHRunner(MultiNodeRunner):
    """Starts deepspeed.launcher.launch on each machine over ssh; it starts the ranks there."""

    @property
    def name(self):
        return "pdsh"

    def backend_exists(self):
        return shutil.which("pdsh")

    def parse_user_args(self):
        """Quotes arguments with spaces, since a shell on the other machine splits the words again."""
        return ['"' + word.replace('"', '\\"') + '"' if " " in word else word for word in self.args.user_args]

    def get_cmd(self, environment, active_resources):
        """Returns (command, the command that ends what it has started, environment)."""
        args = self.args
        environment["PDSH_RCMD_TYPE"] = "ssh"
        if args.ssh_port is not None:
            environment["PDSH_SSH_ARGS_APPEND"] = f"{environment.get('PDSH_SSH_ARGS_APPEND', '')} -p {args.ssh_port}"
        workers = ",".join(active_resources)
        logger.info(f"Running on the following workers: {workers}")
        pdsh = ["pdsh", "-S", "-f", str(PDSH_MAX_FAN_OUT), "-w", workers, *split(args.launcher_args)]
        # pdsh writes the machine's number in place of %n.
        launch = [sys.executable, "-u", "-m", "deepspeed.launcher.launch", f"--world_info={self.world_info_base64}"]
        places = ["--node_rank=%n", f"--master_addr={args.master_addr}", f"--master_port={args.master_port}"]
        kill = [*pdsh, "pkill -f ", "\\ ".join(launch[:4])]
        before = [f"source {args.venv_script};"] if args.venv_script is not None else []
        before += ["".join(f"export {key}={value}; " for key, value in self.exports.items()), f"cd {os.path.abspath('.')};"]
        command = [*pdsh, *before, *launch, *places, *launch_flags(args), self.user_script, *self.user_arguments]
        return command, kill, environment


def launch_flags(args):
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
    """Is the base of launchers that place the ranks themselves. resource_pool: {host: number of slots, or slots}."""

    _probe = ""  # a program that is there where the launcher is

    def __init__(self, args, world_info_base64, resource_pool):
        super().__init__(args, world_info_base64)
        self.resource_pool = resource_pool

    def backend_exists(self):
        return shutil.which(self._probe)

    def _slots(self):
        return [slots if isinstance(slots, int) else len(slots) for slots in self.resource_pool.values()]

    def _slots_of_each(self):
        """Returns the number of slots, which all machines must have alike."""
        counts = set(self._slots())
        if len(counts) != 1:
            raise ValueError(f"{self.name} requires the same number of devices on each node, got {self._slots()}")
        return counts.pop()

    def _python(self):
        if self.args.no_python:
            return []
        return [sys.executable, "-u"] + (["-m"] if self.args.module else [])

    def _program(self):
        return [*self._python(), self.user_script, *self.user_arguments]

    def _meeting(self, flag):
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
    """Is the base of the launchers of MPI, which take whole machines alone."""

    def validate_args(self):
        if self.args.include or self.args.exclude:
            raise ValueError(f"{self.name} backend does not support worker include/exclusion")
        if self.args.num_nodes != -1 or self.args.num_gpus != -1:
            raise ValueError(f"{self.name} backend does not support limiting num nodes/gpus")


class OpenMPIRunner(_MpiRunner):
    """Starts the ranks by Open MPI's mpirun."""

    _probe = "ompi_info"

    def __init__(self, args, world_info_base64, resource_pool):
        super().__init__(args, world_info_base64, resource_pool)
        self.add_export("UCX_TLS", "tcp")

    @property
    def name(self):
        return "openmpi"

    def get_cmd(self, environment, active_resources):
        given = split(self.args.launcher_args)
        chooses_interface = any(
            word in ("-mca", "--mca") and key == "btl_tcp_if_include" for word, key in zip(given, given[1:])
        )
        interface = [] if chooses_interface else ["--mca", "btl_tcp_if_include", "eth0"]
        command = ["mpirun", "-n", str(sum(self._slots())), "-hostfile", str(self.args.hostfile), "--mca", "btl", "^openib"]
        exports = [word for key, value in self.exports.items() for word in ("-x", f"{key}={value}")]
        return [*command, *interface, *given, *exports, *self._program()]


class MPICHRunner(_MpiRunner):
    """Starts the ranks by MPICH's mpirun, through a helper that tells them their places."""

    _probe = "mpirun"

    @property
    def name(self):
        return "mpich"

    def get_cmd(self, environment, active_resources):
        each = self._slots_of_each()
        command = ["mpirun", "-n", str(sum(self._slots())), "-ppn", str(each), *split(self.args.launcher_args)]
        exports = [word for key, value in self.exports.items() for word in ("-genv", f"{key}={value}")]
        hosts = ["-hosts", ",".join(self.resource_pool)]
        helper = [os.path.join(os.path.dirname(os.path.realpath(__file__)), "launcher_helper.py")]
        flags = ["--launcher", self.args.launcher]
        flags += [f"--{name}" for name in ("module", "no_python") if getattr(self.args, name)]
        start = [sys.executable, "-u", *helper, *flags, self.user_script, *self.user_arguments]
        return [*command, *exports, *self._meeting("-genv"), *hosts, *start]


class IMPIRunner(_MpiRunner):
    """Starts the ranks by Intel MPI's mpirun, one part of the command a rank."""

    _probe = "mpirun"

    @property
    def name(self):
        return "impi"

    def get_cmd(self, environment, active_resources):
        args, each = self.args, self._slots_of_each()
        exports = [word for key, value in self.exports.items() for word in ("-genv", key, value)]
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

    def _part_of(self, rank, local_rank, local_size):
        binding = []
        if self.args.bind_cores_to_rank:
            _, binding = get_numactl_cmd(self.args.bind_core_list, local_size, local_rank)
        place = ["-n", "1", "-env", "RANK", str(rank), "-env", "LOCAL_RANK", str(local_rank)]
        return [*place, *binding, *self._program()]


class SlurmRunner(_PoolRunner):
    """Starts the ranks by Slurm's srun."""

    _probe = "sinfo"

    @property
    def name(self):
        return "slurm"

    def get_cmd(self, environment, active_resources):
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
        exports = "".join(f",{key}={value}" for key, value in self.exports.items())
        return [*command, f"--export=ALL{exports}", *self._program()]


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

    def __init__(self, args, world_info_base64, resource_pool):
        super().__init__(args, world_info_base64, resource_pool)
        for key, value in self._settings.items():
            self.add_export(key, value)
        if get_accelerator().device_name() == "cuda":
            self.add_export("MV2_USE_CUDA", "1")

    @property
    def name(self):
        return "mvapich"

    def backend_exists(self):
        if not shutil.which("mpiname"):
            warnings.warn("mpiname does not exist, mvapich is not installed properly")
            return False
        found = subprocess.check_output(["mpiname"]).decode().strip()
        if "MVAPICH2-GDR" not in found:
            warnings.warn(f"Expected MVAPICH2-GDR as return for mpiname but received {found}")
            return False
        return True

    def get_cmd(self, environment, active_resources):
        each = self._slots_of_each()
        with open(MVAPICH_TMP_HOSTFILE, "w") as file:
            file.writelines(f"{host}\n" for host in self.resource_pool)
        command = ["mpirun", "-np", str(sum(self._slots())), "-ppn", str(each), "--hostfile", MVAPICH_TMP_HOSTFILE]
        exports = [word for key, value in self.exports.items() for word in ("-env", f"{key}={value}")]
        return [*command, *split(self.args.launcher_args), *exports, *self._program()]
