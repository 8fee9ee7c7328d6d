"""Defines DeepSpeedEngine: a torch.nn.Module around the client's, which the core trains."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from deepspeed import _config, _core, _model, _world
from deepspeed._client_optimizer import plan_optimizer
from deepspeed._clients import enters_no_sync_everywhere
from deepspeed._errors import NotSupportedError, UsageError
from deepspeed._mpu import core_mpu
from deepspeed.elasticity.config import elasticity_errors
from deepspeed.monitor.monitor import MonitorMaster
from deepspeed.runtime.backward.derivative_window import open_in_derivative
from deepspeed.runtime.backward.direct_backward import by_engine, refuse_direct
from deepspeed.runtime.bf16_optimizer import BF16_Optimizer
from deepspeed.runtime.compiler import leave_compiled_autograd
from deepspeed.runtime.dataloader import DeepSpeedDataLoader
from deepspeed.runtime.eigenvalue import summary_events as _eigenvalue_summary_events  # noqa: F401  -- scripts take it from here
from deepspeed.runtime.engine_parts.checkpoint_names import checkpoint_parallel_metadata as _checkpoint_parallel_metadata  # noqa: F401
from deepspeed.runtime.engine_parts.graphed_call import run_graphed
from deepspeed.runtime.engine_parts.mixed_precision import EngineMixedPrecision
from deepspeed.runtime.engine_parts.module_calls import ModuleCalls
from deepspeed.runtime.engine_parts.param_groups import ParamGroups
from deepspeed.runtime.engine_parts.saving import EngineSaving
from deepspeed.runtime.engine_parts.schedule_place import SchedulePlace
from deepspeed.runtime.engine_parts.state_moves import EngineStateMoves
from deepspeed.runtime.torch_autocast import with_safe_modules
from deepspeed.utils import groups
from deepspeed.utils.expert_groups import require_whole_experts
from deepspeed.utils.logging import logger, set_log_level_from_string
from deepspeed.utils.torch import is_functorch_transforming
from deepspeed.utils.z3_leaf_module import mark_configured_leaf_modules, note_leaf_modules

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import NoReturn, SupportsIndex

    from torch.utils.data import Dataset
    from typing_extensions import Self

    from deepspeed._client_optimizer import OptimizerPlan
    from deepspeed._core import Engine as CoreEngine
    from deepspeed._schedules import ClientSchedule
    from deepspeed._types import Mpu, RateSchedule, Schedule
    from deepspeed.runtime.base_optimizer import DeepSpeedOptimizer

# Types of initialize()'s arguments: functions of parameters, and of an optimizer.
DeepSpeedOptimizerCallable = Callable[[Any], torch.optim.Optimizer]
DeepSpeedSchedulerCallable = Callable[[torch.optim.Optimizer], Any]


class DeepSpeedEngine(EngineSaving, EngineStateMoves, EngineMixedPrecision, torch.nn.Module):
    """Trains a module as its config says. Names and meanings of the methods are DeepSpeed's."""

    _core: CoreEngine

    def __init__(
        self,
        args: object,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer | Callable[[Any], torch.optim.Optimizer] | None = None,
        model_parameters: Iterable[Any] | None = None,
        training_data: Dataset[Any] | None = None,
        lr_scheduler: Schedule | Callable[[Any], Schedule] | None = None,
        mpu: Mpu | None = None,
        dist_init_required: bool | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        config: Any = None,
        config_class: object = None,
        mesh_device: object = None,
        dont_change_device: bool = False,
    ) -> None:
        super().__init__()
        self.__dict__["_core"] = None
        self.config = config
        self.client_optimizer = optimizer
        self.client_lr_scheduler = lr_scheduler
        self.collate_fn = collate_fn
        self.mpu = groups.mpu = mpu
        self.pipeline_parallelism = False
        self._is_compiled = False
        self._is_destroyed = False
        if config.get("log_level") is not None:
            set_log_level_from_string(config["log_level"])
        _end_engines_of(model)
        require_whole_experts(model.named_parameters())
        mark_configured_leaf_modules(model, config)
        _config.check_autos(config, [name for name, own in (("optimizer", optimizer), ("scheduler", lr_scheduler)) if own is None])
        plan = plan_optimizer(with_safe_modules(_config.for_core(config)), model, optimizer, model_parameters)
        self._plan = plan
        self._names = dict(model.named_parameters())
        self._groups = ParamGroups(plan, self._names)
        self._schedules = SchedulePlace(self._groups)
        core = self._make_core(model, plan, self._schedules.maker(lr_scheduler))
        self.__dict__["_core"] = core
        _model.move_passing_buffers(model, core.device())
        _world.engines.add(self)
        self.module = model
        self.optimizer = None
        if core.has_optimizer():
            self.optimizer = self._groups.facade_of(core.param_groups())
            self.optimizer._attach(self)
        self._schedules.show_own(self, self.optimizer)
        if plan.slice_optimizer is not None and self.sparse_gradients_enabled() and core.zero_optimization_stage() == 0:
            plan.slice_optimizer["stepper"].give_rows(_params_with_sparse_gradients(model))
        self._module_calls = ModuleCalls(core)
        self._runs_eagerly = core.zero_optimization_stage() == 3
        if self._runs_eagerly:
            note_leaf_modules(model)
            self._module_calls.watch(model)
        self.monitor = MonitorMaster(_config.monitors_of(config, self._resolved()))
        if self.monitor.enabled:
            _core.add_monitor(core, self.monitor.write_events)
        self._tput_timer = None
        self._is_gradient_accumulation_boundary: bool | None = None  # what set_gradient_accumulation_boundary() was given
        self._drops_layers = self.pld_enabled()
        self._steps_in_backward = self._key(bool, "zero_optimization.offload_optimizer.super_offload")
        self._refuses_direct_backward = core.has_optimizer() and core.zero_optimization_stage() == 0
        self.training_dataloader: DeepSpeedDataLoader | None = None
        if training_data is not None:
            self._take_training_data(training_data)

    # --- how it is put together ---

    def _make_core(self, model: torch.nn.Module, plan: OptimizerPlan, make_schedule: Callable[[Any], ClientSchedule] | None) -> Any:
        described = _model.describe(model)
        with elasticity_errors():
            core = _core.make_engine(described, plan.config, plan.groups, plan.slice_optimizer, make_schedule, core_mpu(self.mpu))
        if core.has_optimizer() and core.zero_optimization_stage() == 0:
            core.leave_unannounced_gradients()  # drops another engine's gradients, as zero_grad() of the module does in a GAN
        return core

    def _take_training_data(self, training_data: Dataset[Any]) -> None:
        self.training_dataloader = self.deepspeed_io(training_data)

    @property
    def lr_scheduler(self) -> RateSchedule | None:
        return self._schedules.shown

    @lr_scheduler.setter
    def lr_scheduler(self, schedule: Schedule | None) -> None:
        self._schedules.put(schedule, self._core)

    # --- training ---

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Calls the module, whose parameters may be partitioned.

        With fp16.auto_cast floating-point inputs are converted to fp16. Returns what the module returns; the engine follows its tensors
        through backward. Raises what the module raises.
        """
        core = self._core
        leave_compiled_autograd()
        if self._steps_in_backward and self.optimizer is not None:
            self.optimizer._push()  # for a loss.backward() by the script
        scope = _core.Forward(core)
        mark = self._module_calls.begin()
        try:
            if self._tput_timer is not None and self.training:
                self._tput_timer.start()
            if self._drops_layers:
                kwargs = {**kwargs, "progressive_layer_drop": True, "pld_theta": core.get_pld_theta()}
            if self._casts_inputs:
                inputs, kwargs = pytree.tree_map_only(torch.Tensor, _to_half, (inputs, kwargs))
            output = run_graphed(scope, self._run, inputs, kwargs) if scope.has_graphs() else self._run(inputs, kwargs)
            if is_functorch_transforming():  # the caller takes the derivative: it gives the engine no gradients
                if self._runs_eagerly:
                    open_in_derivative(core, output)
                return output
            is_tensor = isinstance(output, torch.Tensor)
            output = scope.output(output) if is_tensor else pytree.tree_map_only(torch.Tensor, scope.output, output)
            if self._refuses_direct_backward:
                refuse_direct(output, self._names.values())
            return output
        except RuntimeError as error:
            if type(error) is RuntimeError:  # torch's own
                core.explain_forward_error(str(error))
            raise
        finally:
            self._module_calls.end(mark)
            scope.close()

    def _run(self, inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if self._runs_eagerly and "torch._dynamo" in sys.modules:
            from deepspeed.runtime.uncompiled import run_eagerly

            return run_eagerly(self.module, inputs, kwargs)
        return self.module(*inputs, **kwargs)

    def backward(self, loss: torch.Tensor, retain_graph: bool = False, scale_wrt_gas: bool = True) -> torch.Tensor:
        """Runs backward of the loss, divided by the accumulation steps and scaled. Collective.

        loss: a scalar that requires a gradient. The scale is the loss scale. retain_graph: keeps the graph for another backward.
        scale_wrt_gas: False skips the division. Returns the divided loss, detached. Raises UsageError without an optimizer, and for
        another loss.
        """
        optimizer = self._require_optimizer("backward")
        leave_compiled_autograd()
        if self._steps_in_backward:
            optimizer._push()  # the rates of the step that this backward may begin
        try:
            with by_engine():
                return self._core.backward(loss, retain_graph, scale_wrt_gas)
        finally:
            self._module_calls.end_backward()

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """Returns the loss (one element) times the loss scale, for a script's own backward(). Raises UsageError."""
        self._require_optimizer("scale")
        if loss.numel() != 1:
            raise UsageError(
                f"scale(): got a tensor of shape {tuple(loss.shape)}, expected a scalar tensor: reduce the loss by mean() or sum()"
            )
        return self._core.scale(loss)

    def step(self, lr_kwargs: dict[str, int] | None = None) -> None:
        """Ends a micro step. At the accumulation boundary it updates parameters and schedule. Collective.

        lr_kwargs: arguments for the schedule's step(). In fp16 an update whose gradients overflow is skipped. Raises UsageError without
        an optimizer.
        """
        core, optimizer = self._core, self._require_optimizer("step")
        self._module_calls.end_backward()
        optimizer._push()
        optimizer._note_step()
        updates, skipped = core.global_steps(), core.skipped_steps()
        core.step(self._schedules.iteration_of(lr_kwargs))
        if core.global_steps() != updates:
            optimizer.overflow = core.skipped_steps() != skipped
        if self._tput_timer is not None:
            self._tput_timer.stop(global_step=core.global_steps() != updates)
        optimizer._pull()

    def zero_grad(self, set_to_none: bool = True) -> None:
        if self.optimizer is not None:
            self._core.zero_grad()

    def train(self, mode: bool = True) -> DeepSpeedEngine:
        core = self.__dict__.get("_core")
        if core is not None:
            self.training = mode
            core.train(mode)
        return self

    def eval(self) -> DeepSpeedEngine:
        return self.train(False)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Lets backwards accumulate this rank's gradients without reduction, at stages 0 and 1."""
        if enters_no_sync_everywhere():  # it means accumulation, which the engine counts itself
            yield
            return
        self._require_micro_steps("no_sync")
        scope = _core.NoSync(self._core)
        self.inside_no_sync_ctxt = True
        try:
            yield
        finally:
            self.inside_no_sync_ctxt = False
            scope.close()

    @contextlib.contextmanager
    def coalesce_grad_reduction(self) -> Iterator[None]:
        """Keeps backwards' gradients with the parameters; the end of the scope reduces their sum once."""
        self._require_micro_steps("coalesce_grad_reduction")
        if isinstance(self.optimizer, BF16_Optimizer):
            raise NotSupportedError(
                "coalesce_grad_reduction() does not go with the optimizer wrapper BF16_Optimizer (stage 1 in bf16 with "
                'data_types.grad_accum_dtype "fp32"): set stage 2, or leave grad_accum_dtype out'
            )
        scope = _core.CoalescedReduction(self._core)
        try:
            yield
        except BaseException:
            scope.forget()
            raise
        scope.close()

    def is_gradient_accumulation_boundary(self) -> bool:
        return self._core.is_gradient_accumulation_boundary()

    def set_gradient_accumulation_boundary(self, is_boundary: bool | None) -> None:
        """Overrides the accumulation boundary until the next call. None returns to counting micro steps."""
        self._core.set_gradient_accumulation_boundary(is_boundary)
        self._is_gradient_accumulation_boundary = is_boundary

    def allreduce_gradients(self, bucket_size: int | None = None) -> None:
        self._core.allreduce_gradients(bucket_size)

    def _backward_prologue(self, *_: object) -> None:
        """Changes nothing. Scripts call it before a backward of their own."""

    def _backward_epilogue(self) -> None:
        self._core.finish_backward()

    def compile(
        self,
        backend: str | Callable[..., Any] = "inductor",
        compile_kwargs: Mapping[str, Any] | None = None,
        schedule: object = None,
        compiled_autograd_enabled: bool = False,
    ) -> None:
        """Compiles the module by torch.compile.

        At stage 3, which gathers parameters at each operator, it stays eager. compile_kwargs: further arguments of torch.compile.
        compiled_autograd_enabled: logs a warning, since backward stays eager. Raises NotSupportedError for a schedule of passes.
        """
        if schedule is not None:
            raise NotSupportedError("compile(schedule=...): passes over compiled graphs are not supported; leave it out")
        if self._runs_eagerly:
            logger.warning("compile(): at stage 3 the module runs eagerly, since compiled kernels cannot gather parameters")
        else:
            self.module.compile(backend=backend, **(compile_kwargs or {}))
        if compiled_autograd_enabled:
            from deepspeed.runtime.uncompiled import warn_of_compiled_autograd

            warn_of_compiled_autograd()
        self._is_compiled = True

    @property
    def is_compiled(self) -> bool:
        return self._is_compiled

    def destroy(self) -> None:
        """Frees the optimizer and its states. The model keeps its weights."""
        self._module_calls.stop()
        self._core.destroy()
        self._is_destroyed = True

    def empty_partition_cache(self) -> None:
        self._core.empty_partition_cache()

    def deepspeed_io(
        self,
        dataset: Dataset[Any],
        batch_size: int | None = None,
        route: str = "train",
        pin_memory: bool = True,
        data_sampler: Any = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        num_local_io_workers: int | None = None,
    ) -> DeepSpeedDataLoader:
        """Returns a loader of this rank's micro batches.

        route: "train" shuffles; "eval" and "predict" keep the order. batch_size: samples of a micro batch; None: the config's.
        pin_memory: has an effect on a GPU only. data_sampler: replaces the one that distributes samples over the data-parallel ranks.
        collate_fn(samples): None: that of initialize(), otherwise torch's. num_local_io_workers: processes that read; None: the rank
        itself. Raises UsageError for another route.
        """
        if route not in ("train", "eval", "predict"):
            raise UsageError(f"deepspeed_io(): route is {route!r}, expected train, eval or predict")
        return DeepSpeedDataLoader(
            dataset=dataset,
            batch_size=batch_size or self.train_micro_batch_size_per_gpu(),
            pin_memory=pin_memory and self.device.type == "cuda",
            local_rank=self.local_rank,
            tput_timer=None,
            collate_fn=collate_fn or self.collate_fn,
            num_local_io_workers=num_local_io_workers,
            data_sampler=data_sampler,
            data_parallel_world_size=self.dp_world_size,
            data_parallel_rank=self._data_parallel_rank,
            dataloader_drop_last=self.dataloader_drop_last(),
            shuffle=route == "train",
            seed=self._key(int, "seed") or 0,
        )

    # --- as a module ---

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Self:
        """Allows conversions that change nothing. The config chooses dtypes, and the rank the device. Raises UsageError for others."""
        example = torch.empty(0, device=self.device, dtype=self._dtype)
        made = fn(example)
        if made.device != example.device or made.dtype != example.dtype:
            raise UsageError(
                f"the engine's parameters cannot go from {example.dtype} on {example.device} to {made.dtype} on {made.device}: "
                "the config's fp16 and bf16 sections choose the dtype, and the rank the device"
            )
        return self

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            module = self.__dict__.get("_modules", {}).get("module")
            if module is not None and hasattr(module, name):
                return getattr(module, name)
            raise

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            "an engine cannot be copied or pickled: it holds connections to the other ranks; save_checkpoint() keeps its state, and "
            "the weights are in engine.module, at stage 3 inside of zero.GatheredParameters"
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> NoReturn:
        self.__reduce_ex__(2)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self.module)})  # type: ignore[no-untyped-call]  # of torch

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, **_: Any) -> Any:  # type: ignore[override]  # as DeepSpeed's
        return self.module.load_state_dict(state_dict, strict=strict)

    def _require_optimizer(self, call: str) -> DeepSpeedOptimizer:
        if self.optimizer is None:
            raise UsageError(f"must provide optimizer during init in order to use {call}")
        return self.optimizer

    def _require_micro_steps(self, call: str) -> None:
        if self.pipeline_parallelism:
            raise NotSupportedError(f"{call}() is not supported with pipeline parallelism: train_batch() reduces gradients once a batch")


def _to_half(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.half() if tensor.is_floating_point() else tensor


def _params_with_sparse_gradients(model: torch.nn.Module) -> list[torch.Tensor]:
    kinds = (torch.nn.Embedding, torch.nn.EmbeddingBag)
    return [part.weight for part in model.modules() if isinstance(part, kinds) and part.sparse]


def _end_engines_of(model: torch.nn.Module) -> None:
    """Destroys an engine that the module already has. Scripts initialize a module again and forget their first engine."""
    for engine in list(_world.engines):
        if not isinstance(engine, DeepSpeedEngine) or engine.__dict__.get("_core") is None:
            continue
        if engine.module is model and not engine._is_destroyed:
            logger.warning("initialize() takes the module from the engine that it had, which is destroyed")
            engine.destroy()
