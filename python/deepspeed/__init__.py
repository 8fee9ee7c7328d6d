"""DeepSpeed on the C++ engine of deepspeed-cpp."""
import torch  # isort: skip  -- its libraries must be loaded before _core, which uses them

from deepspeed._version import __version__, check_torch, git_branch, git_hash

check_torch()

from deepspeed import _core  # noqa: E402  -- after the check that says in one line what does not fit
from deepspeed import accelerator, comm, ops, utils, zero  # noqa: E402
from deepspeed._errors import (  # noqa: E402
    CheckpointError,
    CommError,
    ConfigError,
    DeepSpeedError,
    IoError,
    NotSupportedError,
    UsageError,
)
from deepspeed._initialize import add_config_arguments, initialize  # noqa: E402
from deepspeed.accelerator import get_accelerator  # noqa: E402
from deepspeed.comm.comm import init_distributed  # noqa: E402
from deepspeed.runtime.engine import DeepSpeedEngine  # noqa: E402
