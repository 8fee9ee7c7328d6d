"""deepspeed.initialize and the arguments of a script's command line."""

import contextlib
import os
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple, Union

import torch
import torch.distributed as dist

from deepspeed import _config, _world
from deepspeed._version import __version__, git_branch, git_hash
from deepspeed.runtime.engine import DeepSpeedEngine
from deepspeed.runtime.pipe.engine import PipelineEngine
from deepspeed.runtime.pipe.module import PipelineModule
from deepspeed.runtime.zero.partition_parameters import init_paused
from deepspeed.utils.logging import log_dist


def initialize(
    args: Any = None,
    model: Optional[torch.nn.Module] = None,
    optimizer: Union[torch.optim.Optimizer, Callable[[Any], torch.optim.Optimizer], None] = None,
    model_parameters: Optional[Iterable[Any]] = None,
    training_data: Optional[torch.utils.data.Dataset] = None,
    lr_scheduler: Any = None,
    distributed_port: int = 29500,
    mpu: Any = None,
    dist_init_required: Optional[bool] = None,
    collate_fn: Optional[Callable[[List[Any]], Any]] = None,
    config: Union[str, Dict[str, Any], None] = None,
    mesh_param: Optional[Tuple[int, int]] = None,
    config_params: Union[str, Dict[str, Any], None] = None,
) -> Tuple[DeepSpeedEngine, Any, Any, Any]:
    """Makes an engine for `model`, whose parameters keep their identity: a PipelineEngine for a PipelineModule.

    config: a dict, a path, JSON text or its base64. optimizer: an object or a callable of the parameters, instead of the
    config's. lr_scheduler: an object or a callable of the optimizer, instead of the config's. mpu: of a script whose ranks share
    the model out: its data- and model-parallel groups, as Megatron's. Returns (engine, optimizer,
    training_dataloader, lr_scheduler). Raises ConfigError, naming the key, and UsageError.
    """
    log_dist(f"DeepSpeed info: version={__version__}, git-hash={git_hash}, git-branch={git_branch}", ranks=[0])
    assert model is not None, "deepspeed.initialize requires a model"
    config = _find_config(args, config if config is not None else config_params)
    engine_class = DeepSpeedEngine
    if isinstance(model, PipelineModule):
        assert mpu is None, "mpu must be None with pipeline parallelism"
        engine_class, mpu = PipelineEngine, model.mpu()
    _check_mesh(mesh_param)
    if dist_init_required is False:
        assert dist.is_initialized(), (
            "Distributed backend is not initialized. Please set dist_init_required to True or initialize before calling "
            "deepspeed.initialize()"
        )
    _world.ensure_world(port=distributed_port)
    _check_local_rank(args)
    if hasattr(args, "local_rank"):  # scripts read it, and torchrun and mpirun give no such argument
        args.local_rank = int(os.environ.get("LOCAL_RANK", 0))
    config = _config.read_config(config)
    # Stage 3 takes parameters over that a zero.Init around this call has partitioned; other stages want them whole.
    with init_paused() if _config.stage_of(config) == 3 else contextlib.nullcontext():
        engine = engine_class(
            args=args,
            model=model,
            optimizer=optimizer,
            model_parameters=model_parameters,
            training_data=training_data,
            lr_scheduler=lr_scheduler,
            mpu=mpu,
            dist_init_required=dist_init_required,
            collate_fn=collate_fn,
            config=config,
        )
    return engine, engine.optimizer, engine.training_dataloader, engine.lr_scheduler


def _find_config(args, config):
    given = getattr(args, "deepscale_config", None)
    if given is not None:
        assert getattr(args, "deepspeed_config", None) is None, (
            "Not sure how to proceed, we were given both a deepscale_config and deepspeed_config"
        )
    else:
        given = getattr(args, "deepspeed_config", None)
    if given is not None:
        assert config is None, (
            "Not sure how to proceed, we were given deepspeed configs in the deepspeed arguments and deepspeed.initialize() function call"
        )
        config = given
    assert config is not None, "DeepSpeed requires --deepspeed_config to specify configuration file"
    return config


def _check_mesh(mesh_param):
    if mesh_param is None:
        return
    from deepspeed._errors import NotSupportedError

    if tuple(mesh_param)[1:] != (1,):
        raise NotSupportedError(f"initialize(mesh_param={mesh_param}): sequence parallelism does not exist yet; leave it out")


def _check_local_rank(args):
    given = getattr(args, "local_rank", None)
    if given is not None and given >= 0 and "LOCAL_RANK" in os.environ:
        assert given == int(os.environ["LOCAL_RANK"]), (
            f"Not sure how to proceed, the argument --local_rank is {given}, and LOCAL_RANK is {os.environ['LOCAL_RANK']}"
        )


def add_config_arguments(parser):
    """Adds --deepspeed and --deepspeed_config, and their older names, to a parser of arguments."""
    import argparse

    group = parser.add_argument_group("DeepSpeed", "DeepSpeed configurations")
    group.add_argument(
        "--deepspeed",
        default=False,
        action="store_true",
        help="Enable DeepSpeed (helper flag for user code, no impact on DeepSpeed backend)",
    )
    group.add_argument("--deepspeed_config", default=None, type=str, help="DeepSpeed json configuration file.")
    group.add_argument("--deepscale", default=False, action="store_true", help=argparse.SUPPRESS)
    group.add_argument("--deepscale_config", default=None, type=str, help=argparse.SUPPRESS)
    return parser
