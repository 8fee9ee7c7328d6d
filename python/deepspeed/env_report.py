"""ds_report: what is installed, which ops the engine has, and what of the machine matters to it."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
from typing import TYPE_CHECKING

import torch

import deepspeed
from deepspeed import _build, _core, git_version_info
from deepspeed.accelerator import get_accelerator
from deepspeed.launcher import programs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import NoReturn

_WIDTH = 33
_SHM_WANTED = 512 * 1024**2


def op_report(verbose: bool = True) -> None:
    """Prints of each op whether the engine has it; nothing is compiled at run time."""
    print("DeepSpeed C++ op report: kernels are compiled into the engine")
    for name, is_there in sorted(deepspeed.ops.__compatible_ops__.items()):
        if name != "deepspeed_not_implemented":
            print(f"{name} {'.' * max(_WIDTH - len(name), 1)} {'yes' if is_there else 'no'}")


def ds_report() -> None:
    op_report()


def human_readable_size(size: float) -> str:
    """Returns bytes as people read them, as "1.50 GB"."""
    units = ("B", "KB", "MB", "GB", "TB")
    index = 0
    while size >= 1024 and index < len(units) - 1:
        size /= 1024
        index += 1
    return f"{size:.2f} {units[index]}"


def get_shm_size() -> tuple[str, list[str]]:
    """Returns (size of /dev/shm, warnings): NCCL and data loaders pass data through it."""
    try:
        stats = os.statvfs("/dev/shm")
    except OSError:
        return "UNKNOWN", []
    size = stats.f_frsize * stats.f_blocks
    if size >= _SHM_WANTED:
        return human_readable_size(size), []
    return human_readable_size(size), ["/dev/shm may be too small; in a container start it with --shm-size=1gb or more"]


def nvcc_version() -> str:
    """Returns where nvcc is: the engine needs none, since its kernels are compiled in."""
    return shutil.which("nvcc") or "not installed, and not needed"


def _lines() -> Iterator[tuple[str, object]]:
    accelerator = get_accelerator()
    yield "torch install path", torch.__path__
    yield "torch version", torch.__version__
    yield "deepspeed install path", deepspeed.__path__
    yield "deepspeed info", f"{deepspeed.__version__}, {git_version_info.git_hash}, {git_version_info.git_branch}"
    yield "torch cuda version", torch.version.cuda
    yield "nvcc", nvcc_version()
    yield "engine's cuda", f"{_build.CUDA}, for {_build.CUDA_ARCHITECTURES}" if _build.CUDA_ARCHITECTURES else "not built"
    yield "engine's devices", _core.num_cuda_devices() or f"none: {_core.why_no_cuda_device()}"
    yield "io_uring", f"none, threads stand for it: {_core.why_no_uring()}" if _core.why_no_uring() else "reads and writes files"
    yield "accelerator", accelerator.device_name()
    yield "number of devices", accelerator.device_count()
    yield "collectives", accelerator.communication_backend_name()
    yield "python", platform.python_version()
    yield "shared memory (/dev/shm) size", get_shm_size()[0]


def debug_report() -> None:
    """Prints paths, versions and the device."""
    print("DeepSpeed general environment info:")
    for name, value in _lines():
        print(f"{name} {'.' * max(_WIDTH - len(name), 1)} {value}")
    for warning in get_shm_size()[1]:
        print(f"[WARNING] {warning}")


def parse_arguments(args: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hide_operator_status", action="store_true", help="do not list the ops")
    parser.add_argument("--hide_errors_and_warnings", action="store_true", help="is taken; the list of ops has none")
    parser.add_argument("-f", "--hostfile", default="", help="report of all its hosts, each line with its host in front")
    parser.add_argument("-p", "--ssh_port", type=int, default=None, help="the port of their ssh servers")
    return parser.parse_args(args)


def main(hide_operator_status: bool = False, hide_errors_and_warnings: bool = False) -> None:
    if not hide_operator_status:
        op_report(verbose=not hide_errors_and_warnings)
    debug_report()


def report_of_hosts(args: argparse.Namespace) -> NoReturn:
    """Becomes ds_ssh, which runs the report by this Python on all hosts at once."""
    words = ["-f", args.hostfile] + ([] if args.ssh_port is None else ["-p", str(args.ssh_port)])
    words += ["env", f"PYTHONPATH={os.environ.get('PYTHONPATH', '')}", sys.executable, "-m", "deepspeed.env_report"]
    flags = [f"--{name}" for name in ("hide_operator_status", "hide_errors_and_warnings") if getattr(args, name)]
    programs.run("ds_ssh", words + flags)


def cli_main() -> None:
    args = parse_arguments()
    if args.hostfile:
        report_of_hosts(args)
    main(args.hide_operator_status, args.hide_errors_and_warnings)


if __name__ == "__main__":
    cli_main()
