"""Becomes the program `deepspeed`, which starts and watches ranks on one or more machines."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from deepspeed import _core
from deepspeed.launcher import programs
from deepspeed.launcher.arguments import DLTS_HOSTFILE as DLTS_HOSTFILE, parse_args
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
    import argparse
    from collections.abc import Sequence

EXPORT_ENVS = ["MLFLOW", "PYTHON", "MV2", "UCX"]
DEEPSPEED_ENVIRONMENT_NAME = os.getenv("DS_ENV_FILE", ".deepspeed_env")
DEEPSPEED_ENVIRONMENT_PATHS = [os.path.expanduser("~"), "."]

# Flags and options of the program. It has a default for each.
_FLAGS = (
    "no_ssh",
    "no_ssh_check",
    "force_multi",
    "elastic_training",
    "module",
    "no_python",
    "no_local_rank",
    "save_pid",
    "bind_cores_to_rank",
)
_VALUES = ("include", "exclude", "master_addr", "launcher_args", "slurm_comment", "ssh_port", "venv_script", "bind_core_list", "stop_grace")
_NUMBERS = ("num_nodes", "node_rank", "min_elastic_nodes", "max_elastic_nodes", "max_restarts")


def main(args: Sequence[str] | str | None = None) -> None:
    """Becomes the program `deepspeed`, which runs scripts with this Python. Raises ValueError for words that it does not accept."""
    words = args.split() if isinstance(args, str) else list(sys.argv[1:] if args is None else args)
    if not (words and (words[0] in ("-h", "--version") or words[0].startswith("--help"))):
        words = program_words(parse_args(words))
        _core.check_launch(words)
    programs.run("deepspeed", words)


def program_words(args: argparse.Namespace, launcher: str | None = None) -> list[str]:
    """Returns the arguments for the program. launcher: replaces the one of `args`."""
    launcher = args.launcher if launcher is None else launcher
    words = [f"--{name}" for name in _FLAGS if getattr(args, name)]
    values = {name: value for name in _VALUES if (value := getattr(args, name)) not in (None, "")}
    values.update({name: value for name in _NUMBERS if (value := getattr(args, name)) >= 0})
    if args.hostfile != DLTS_HOSTFILE:
        values["hostfile"] = args.hostfile
    if args.num_gpus >= 0:  # for the program --num_gpus counts GPUs; here a rank on a CPU counts as one
        values["num_procs"] = args.num_gpus
    if launcher is not None:
        values["launcher"] = launcher
    if args.master_port is not None:
        values["master_port"] = args.master_port
    if args.enable_each_rank_log != "None":
        values["enable_each_rank_log"] = args.enable_each_rank_log
    if args.autotuning:
        values["autotuning"] = args.autotuning
    if args.quiet or args.log_level != "info":
        values["log_level"] = "error" if args.quiet else args.log_level
    words += [f"--{name}={value}" for name, value in values.items()]
    return [*words, "--", args.user_script, *args.user_args]


if __name__ == "__main__":
    main()
