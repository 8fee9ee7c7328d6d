"""Provides deepspeed.initialize() and the command line arguments of scripts."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, overload

import torch
import torch.distributed as dist

from deepspeed import _config, _world
from deepspeed._version import __version__, git_branch, git_hash
from deepspeed.runtime.engine import DeepSpeedEngine
from deepspeed.runtime.pipe.engine import PipelineEngine
from deepspeed.runtime.pipe.module import PipelineModule
from deepspeed.runtime.zero.partition_parameters import init_paused
from deepspeed.utils.logging import log_dist

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Mapping

    from torch.utils.data import Dataset

    from deepspeed._types import Mpu, RateSchedule, Schedule
    from deepspeed.runtime.base_optimizer import DeepSpeedOptimizer
    from deepspeed.runtime.dataloader import DeepSpeedDataLoader, RepeatingLoader


@overload
def initialize(  # type: ignore[overload-overlap]  # a PipelineModule is a Module
    args: object = ...,
    *,
    model: PipelineModule,
    optimizer: torch.optim.Optimizer | Callable[[Any], torch.optim.Optimizer] | None = ...,
    model_parameters: Iterable[Any] | None = ...,
    training_data: Dataset[Any] | None = ...,
    lr_scheduler: Schedule | Callable[[Any], Schedule] | None = ...,
    distributed_port: int = ...,
    mpu: Mpu | None = ...,
    dist_init_required: bool | None = ...,
    collate_fn: Callable[[list[Any]], Any] | None = ...,
    config: str | os.PathLike[str] | Mapping[str, Any] | None = ...,
    mesh_param: tuple[int, int] | None = ...,
    config_params: str | os.PathLike[str] | Mapping[str, Any] | None = ...,
) -> tuple[PipelineEngine, DeepSpeedOptimizer | None, DeepSpeedDataLoader | RepeatingLoader | None, RateSchedule | None]: ...
@overload
def initialize(
    args: object = ...,
    model: torch.nn.Module | None = ...,
    optimizer: torch.optim.Optimizer | Callable[[Any], torch.optim.Optimizer] | None = ...,
    model_parameters: Iterable[Any] | None = ...,
    training_data: Dataset[Any] | None = ...,
    lr_scheduler: Schedule | Callable[[Any], Schedule] | None = ...,
    distributed_port: int = ...,
    mpu: Mpu | None = ...,
    dist_init_required: bool | None = ...,
    collate_fn: Callable[[list[Any]], Any] | None = ...,
    config: str | os.PathLike[str] | Mapping[str, Any] | None = ...,
    mesh_param: tuple[int, int] | None = ...,
    config_params: str | os.PathLike[str] | Mapping[str, Any] | None = ...,
) -> tuple[DeepSpeedEngine, DeepSpeedOptimizer | None, DeepSpeedDataLoader | None, RateSchedule | None]: ...
def initialize(
    args: object = None,
    model: torch.nn.Module | None = None,
    optimizer: torch.optim.Optimizer | Callable[[Any], torch.optim.Optimizer] | None = None,
    model_parameters: Iterable[Any] | None = None,
    training_data: Dataset[Any] | None = None,
    lr_scheduler: Schedule | Callable[[Any], Schedule] | None = None,
    distributed_port: int = 29500,
    mpu: Mpu | None = None,
    dist_init_required: bool | None = None,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    config: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    mesh_param: tuple[int, int] | None = None,
    config_params: str | os.PathLike[str] | Mapping[str, Any] | None = None,
) -> tuple[DeepSpeedEngine, DeepSpeedOptimizer | None, Any, RateSchedule | None]:
    """Makes an engine that trains `model`: a PipelineEngine for a PipelineModule. Collective.

    args: a script's arguments; their `deepspeed_config` names the config unless `config` is given. model: its parameters stay the same
    objects. optimizer: an object, or a function of the parameters, instead of the config's. model_parameters: parameters or groups of
    parameters; None: all that require a gradient. training_data: a data set; the returned loader gives this rank's micro batches, which
    collate_fn(samples) puts together. lr_scheduler: an object, or a function of the optimizer, instead of the config's. distributed_port:
    for the rendezvous, if there is no process group and MASTER_PORT is not set. mpu: for model parallelism by the script: an object with
    its data- and model-parallel groups, as in Megatron. dist_init_required: False asserts that the script has made the default group.
    config: a dict, a path, JSON text or its base64; config_params is its older name. mesh_param: (data, sequence) parallel sizes; the
    second must be 1.

    Returns (engine, optimizer, training_dataloader, lr_scheduler); what does not exist is None. Raises ConfigError, naming the key,
    UsageError for arguments that contradict each other, NotSupportedError, and AssertionError in the cases in which DeepSpeed asserts.
    """
    log_dist(f"DeepSpeed info: version={__version__}, git-hash={git_hash}, git-branch={git_branch}", ranks=[0])
    assert model is not None, "deepspeed.initialize requires a model"
    given = _find_config(args, config if config is not None else config_params)
    engine_class: type[DeepSpeedEngine] = DeepSpeedEngine
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
    if hasattr(args, "local_rank"):  # scripts read it, but torchrun and mpirun pass no such argument
        args.local_rank = int(os.environ.get("LOCAL_RANK", 0))
    read = _config.read_config(given)
    # Stage 3 takes over parameters that an enclosing zero.Init has partitioned; other stages need whole ones.
    with init_paused() if _config.stage_of(read) == 3 else contextlib.nullcontext():
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
            config=read,
        )
    return engine, engine.optimizer, engine.training_dataloader, engine.lr_scheduler


def _find_config(args: object, config: object) -> object:
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


def _check_mesh(mesh_param: tuple[int, int] | None) -> None:
    if mesh_param is None:
        return
    from deepspeed._errors import NotSupportedError

    if tuple(mesh_param)[1:] != (1,):
        raise NotSupportedError(f"initialize(mesh_param={mesh_param}): sequence parallelism does not exist yet; leave it out")


def _check_local_rank(args: object) -> None:
    given = getattr(args, "local_rank", None)
    if given is not None and given >= 0 and "LOCAL_RANK" in os.environ:
        assert given == int(os.environ["LOCAL_RANK"]), (
            f"Not sure how to proceed, the argument --local_rank is {given}, and LOCAL_RANK is {os.environ['LOCAL_RANK']}"
        )


def add_config_arguments(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Adds --deepspeed, --deepspeed_config and their older names to an argument parser."""
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
