"""DeepSpeed on the C++ engine of deepspeed-cpp."""

from typing import TYPE_CHECKING

from deepspeed import _version
from deepspeed._version import __version__, __version_major__, __version_minor__, __version_patch__, git_branch, git_hash

_version.check_python()  # what does not fit is said in one line

import torch  # its libraries must be loaded before _core, which uses them

_version.check_torch(torch.__version__)
with _version.explained():
    from deepspeed import _core as _core
from deepspeed import _absent, _lazy, accelerator, comm, ops, pipe, utils, zero
from deepspeed import comm as dist
from deepspeed._version import git_branch as __git_branch__
from deepspeed._version import git_hash as __git_hash__
from deepspeed._errors import (
    CheckpointError,
    CommError,
    ConfigError,
    DeepSpeedError,
    IoError,
    NotSupportedError,
    UsageError,
)
from deepspeed._initialize import add_config_arguments, initialize
from deepspeed.accelerator import get_accelerator
from deepspeed.comm.comm import init_distributed
from deepspeed.launcher import runner  # clients read deepspeed.launcher.runner off the package
from deepspeed.pipe import PipelineModule
from deepspeed.runtime import lr_schedules
from deepspeed.runtime.base_optimizer import DeepSpeedOptimizer, ZeROOptimizer
from deepspeed.runtime.config import DeepSpeedConfig, DeepSpeedConfigError
from deepspeed.runtime.engine import DeepSpeedEngine
from deepspeed.runtime.lr_schedules import add_tuning_arguments
from deepspeed.runtime.pipe.engine import PipelineEngine
from deepspeed.runtime.zero import partition_parameters
from deepspeed.utils.init_on_device import OnDevice
from deepspeed.utils.logging import log_dist, logger
from deepspeed.utils.logging import follow_core as _follow_core

__all__ = [
    "CheckpointError",
    "CommError",
    "ConfigError",
    "DeepSpeedConfig",
    "DeepSpeedConfigError",
    "DeepSpeedEngine",
    "DeepSpeedError",
    "DeepSpeedOptimizer",
    "IoError",
    "NotSupportedError",
    "OnDevice",
    "PipelineEngine",
    "PipelineModule",
    "UsageError",
    "ZeROOptimizer",
    "__git_branch__",
    "__git_hash__",
    "__version__",
    "__version_major__",
    "__version_minor__",
    "__version_patch__",
    "accelerator",
    "add_config_arguments",
    "add_tuning_arguments",
    "comm",
    "dist",
    "get_accelerator",
    "git_branch",
    "git_hash",
    "init_distributed",
    "initialize",
    "log_dist",
    "logger",
    "lr_schedules",
    "ops",
    "partition_parameters",
    "pipe",
    "runner",
    "torch",
    "utils",
    "zero",
]

_absent.install()
_follow_core()

if TYPE_CHECKING:
    from deepspeed import (
        checkpoint as checkpoint,
        constants as constants,
        git_version_info as git_version_info,
        module_inject as module_inject,
        moe as moe,
        runtime as runtime,
    )
    from deepspeed.ops.transformer import (
        DeepSpeedTransformerConfig as DeepSpeedTransformerConfig,
        DeepSpeedTransformerLayer as DeepSpeedTransformerLayer,
    )
    from deepspeed.runtime.activation_checkpointing import checkpointing as checkpointing
    from deepspeed.runtime.dataloader import DeepSpeedDataLoader as DeepSpeedDataLoader
    from deepspeed.runtime.optimizer_names import (
        ADAM_OPTIMIZER as ADAM_OPTIMIZER,
        LAMB_OPTIMIZER as LAMB_OPTIMIZER,
        MUON_OPTIMIZER as MUON_OPTIMIZER,
    )
else:
    __getattr__ = _lazy.lazy(
        __name__,
        submodules=(
            *("checkpoint", "constants", "elasticity", "git_version_info", "inference", "module_inject", "moe"),
            # They have no counterpart, but for helpers of compression; their names refuse with the way out.
            *("autotuning", "compile", "compression", "io", "linear", "model_implementations", "profiling"),
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
            "TORCH_DISTRIBUTED_DEFAULT_PORT": "deepspeed.constants",
            "checkpointing": "deepspeed.runtime.activation_checkpointing",
            "default_inference_config": "deepspeed.inference.config",
            "DeepSpeedOptimizerCallable": "deepspeed.runtime.engine",
            "DeepSpeedSchedulerCallable": "deepspeed.runtime.engine",
            "domino": "deepspeed.runtime",
            "init_inference": "deepspeed.inference.engine",
            "is_compile_supported": "deepspeed.runtime.compiler",
            "load_ds_config": "deepspeed._config",
            "replace_transformer_layer": "deepspeed.module_inject",
            "revert_transformer_layer": "deepspeed.module_inject",
            "set_autotp_mode": "deepspeed.module_inject.layers",
            "tp_model_init": "deepspeed.module_inject.layers",
            "version": "deepspeed.git_version_info",
        },
    )
