"""DeepSpeed on the C++ engine of deepspeed-cpp."""

import torch  # isort: skip  -- its libraries must be loaded before _core, which uses them

from deepspeed._version import (
    __version__,
    __version_major__,
    __version_minor__,
    __version_patch__,
    check_torch,
    git_branch,
    git_hash,
)

check_torch()

from deepspeed import _core  # noqa: E402  -- after the check that says in one line what does not fit
from deepspeed import _absent, _lazy, accelerator, comm, ops, pipe, utils, zero  # noqa: E402
from deepspeed._version import git_branch as __git_branch__  # noqa: E402,F401
from deepspeed._version import git_hash as __git_hash__  # noqa: E402,F401
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
from deepspeed.launcher import runner  # noqa: E402,F401  -- clients read deepspeed.launcher.runner off the package
from deepspeed.pipe import PipelineModule  # noqa: E402
from deepspeed.runtime import lr_schedules  # noqa: E402,F401
from deepspeed.runtime.base_optimizer import DeepSpeedOptimizer, ZeROOptimizer  # noqa: E402
from deepspeed.runtime.config import DeepSpeedConfig, DeepSpeedConfigError  # noqa: E402
from deepspeed.runtime.engine import DeepSpeedEngine  # noqa: E402
from deepspeed.runtime.lr_schedules import add_tuning_arguments  # noqa: E402
from deepspeed.runtime.pipe.engine import PipelineEngine  # noqa: E402
from deepspeed.runtime.zero import partition_parameters  # noqa: E402,F401
from deepspeed.utils.init_on_device import OnDevice  # noqa: E402
from deepspeed.utils.logging import log_dist, logger  # noqa: E402
from deepspeed.utils.logging import follow_core as _follow_core  # noqa: E402

_absent.install()
_follow_core()

__getattr__ = _lazy.lazy(
    __name__,
    submodules=(
        *("checkpoint", "constants", "git_version_info", "inference", "module_inject", "moe"),
        # They have no counterpart; their names refuse with the way out.
        *("autotuning", "compile", "compression", "elasticity", "io", "linear", "model_implementations", "profiling"),
    ),
    names={
        "ADAM_OPTIMIZER": "deepspeed.runtime.optimizer_names",
        "LAMB_OPTIMIZER": "deepspeed.runtime.optimizer_names",
        "MUON_OPTIMIZER": "deepspeed.runtime.optimizer_names",
        "DeepSpeedConfigError": "deepspeed.runtime.config",
        "DeepSpeedDataLoader": "deepspeed.runtime.dataloader",
        "DeepSpeedHybridEngine": "deepspeed.runtime.hybrid_engine",
        "DeepSpeedInferenceConfig": "deepspeed.inference.config",
        "DeepSpeedTransformerConfig": "deepspeed.ops.transformer",
        "DeepSpeedTransformerLayer": "deepspeed.ops.transformer",
        "InferenceEngine": "deepspeed.inference.engine",
        "checkpointing": "deepspeed.runtime.activation_checkpointing",
        "default_inference_config": "deepspeed.inference.config",
        "init_inference": "deepspeed.inference.engine",
        "replace_transformer_layer": "deepspeed.module_inject",
        "revert_transformer_layer": "deepspeed.module_inject",
        "set_autotp_mode": "deepspeed.module_inject.layers",
        "tp_model_init": "deepspeed.module_inject.layers",
    },
)
