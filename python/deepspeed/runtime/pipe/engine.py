"""Defines the engine of a PipelineModule, which reads whole batches from an iterator. The core sends them through the stages."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch.utils import _pytree as pytree

from deepspeed import _core
from deepspeed._errors import NotSupportedError
from deepspeed.runtime.activation_checkpointing import checkpointing
from deepspeed.runtime.compiler import leave_compiled_autograd
from deepspeed.runtime.dataloader import RepeatingLoader
from deepspeed.runtime.engine import DeepSpeedEngine
from deepspeed.runtime.pipe.module import PipelineError, PipelineModule
from deepspeed.runtime.pipe.stage import Stage, is_reentrant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any, NoReturn

    from torch.distributed import ProcessGroup
    from torch.utils.data import Dataset

    from deepspeed._client_optimizer import OptimizerPlan
    from deepspeed._core import PipelineEngine as CorePipelineEngine
    from deepspeed._schedules import ClientSchedule
    from deepspeed.runtime.pipe.topology import PipelineParallelGrid


class PipelineEngine(DeepSpeedEngine):
    """Trains by train_batch() and evaluates by eval_batch(). forward, backward and step by themselves are errors."""

    _core: CorePipelineEngine  # type: ignore[assignment]  # no Engine: it has no calls of single micro batches
    _stage: Stage
    module: PipelineModule
    training_dataloader: Any  # what set_dataloader() was given
    data_iterator: Iterator[Any] | None
    batch_fn: Callable[[Any], Any] | None

    def __init__(self, has_bool_tensors: bool = False, *super_args: Any, **super_kwargs: Any) -> None:
        self.__dict__["_stage"] = None
        super().__init__(*super_args, **super_kwargs)
        self.pipeline_parallelism = True
        self.has_bool_tensors = has_bool_tensors
        self.has_attention_mask = type(self.module).__name__ == "GPT2ModelPipe"
        self.agg_train_loss: torch.Tensor | None = None
        self._unreported_seconds = 0.0
        self._stage.device = self.device
        self._stage.casts_inputs = self._casts_inputs
        self._configure_recomputation()

    # --- how it is put together ---

    def _make_core(self, model: torch.nn.Module, plan: OptimizerPlan, make_schedule: Callable[[Any], ClientSchedule] | None) -> Any:
        assert isinstance(model, PipelineModule), "model must base PipelineModule"
        self.__dict__["_stage"] = Stage(model)
        self.data_iterator = None
        self.batch_fn = None
        return _core.make_pipeline_engine(self._stage.describe(), plan.config, plan.groups, plan.slice_optimizer, make_schedule)

    def _take_training_data(self, training_data: Dataset[Any]) -> None:
        """Reads the data in order, again and again, on the first and the last stage."""
        sampler: torch.utils.data.distributed.DistributedSampler[Any] = torch.utils.data.distributed.DistributedSampler(
            training_data, num_replicas=self.dp_world_size, rank=self._data_parallel_rank, shuffle=False
        )
        self.training_dataloader = self.deepspeed_io(training_data, data_sampler=sampler)
        self.set_dataloader(RepeatingLoader(self.training_dataloader))

    def _configure_recomputation(self) -> None:
        """Copies the config's section into the module."""
        module, section = self.module, self._resolved()["pipeline"]
        if section["use_reentrant"] is False:
            module.activation_checkpoint_func = checkpointing.non_reentrant_checkpoint
        if section["activation_checkpoint_interval"] > 0:
            module.activation_checkpoint_interval = section["activation_checkpoint_interval"]
        module._precompute_checkpointable_values()

    def _reentrant_activation_checkpointing(self) -> bool:
        """Returns whether the first inputs need a gradient, for a recomputation that may be reentrant."""
        return is_reentrant(self.module)

    # --- places ---

    @property
    def grid(self) -> PipelineParallelGrid:
        return self.module.mpu()

    @property
    def num_stages(self) -> int:
        return self.grid.pipe_parallel_size

    @property
    def stage_id(self) -> int:
        return self.grid.get_stage_id()

    @property
    def prev_stage(self) -> int:
        return self.stage_id - 1

    @property
    def next_stage(self) -> int:
        return self.stage_id + 1

    @property
    def is_pipe_parallel(self) -> bool:
        return self.grid.pipe_parallel_size > 1

    @property
    def is_data_parallel(self) -> bool:
        return self.grid.data_parallel_size > 1

    @property
    def is_model_parallel(self) -> bool:
        return self.grid.model_parallel_size > 1

    @property
    def dp_world_size(self) -> int:
        return self.grid.data_parallel_size

    @property
    def mp_world_size(self) -> int:
        return self.grid.get_model_parallel_world_size()

    @property
    def data_parallel_group(self) -> ProcessGroup:
        return self.grid.get_data_parallel_group()

    @property
    def _data_parallel_rank(self) -> int:
        return self.grid.get_data_parallel_rank()

    @property
    def micro_batch_size(self) -> int:
        return self.train_micro_batch_size_per_gpu()

    @property
    def micro_batches(self) -> int:
        return self.gradient_accumulation_steps()

    def is_first_stage(self) -> bool:
        return self.stage_id == 0

    def is_last_stage(self) -> bool:
        return self.stage_id == self.num_stages - 1

    def get_pipeline_parallel_rank(self) -> int:
        return self.stage_id

    # --- batches ---

    def train_batch(self, data_iter: Iterator[Any] | None = None) -> torch.Tensor:
        """Trains on one micro batch for each accumulation step. Collective.

        data_iter: returns (inputs, labels), tensors or tuples of tensors, on the first and the last stage. Returns the mean loss over the
        micro batches and all ranks, a tensor of one element, on all ranks. Raises StopIteration on all ranks if the data ended before the
        batch, and UsageError if it ends within.
        """
        if not torch.is_grad_enabled():
            raise RuntimeError("train_batch() requires gradients enabled. Use eval_batch() instead.")
        optimizer = self._require_optimizer("train_batch")
        leave_compiled_autograd()
        if data_iter is not None:
            self.set_dataiterator(data_iter)
        self.train()
        core, skipped = self._core, self._core.skipped_steps()
        begin = time.perf_counter()
        optimizer._push()
        self._stage.begin()
        loss = self.agg_train_loss = core.train_batch(self._stage.reader(self.data_iterator, self.batch_fn))
        optimizer.overflow = core.skipped_steps() != skipped
        optimizer._pull()
        self._unreported_seconds += time.perf_counter() - begin
        self._report_steps()
        return loss

    def _report_steps(self) -> None:
        """Prints the last batch's losses and the mean speed every steps_per_print batches. It does so on rank 0, as DeepSpeed does."""
        every = self.steps_per_print()
        if every is None or self.global_steps % every != 0:
            return
        if self.global_rank == 0:
            seconds = self._unreported_seconds / every
            losses: dict[str, Any] = {"loss": self.agg_train_loss, **(self.get_additional_losses() or {})}
            shown = " ".join(f"{name}: {float(loss):0.4f}" for name, loss in losses.items())
            speed = self.train_batch_size() / seconds
            print(f"steps: {self.global_steps} {shown} iter time (s): {seconds:0.3f} samples/sec: {speed:0.3f}")
        self._unreported_seconds = 0.0

    def eval_batch(
        self,
        data_iter: Iterator[Any] | None,
        return_logits: bool = False,
        compute_loss: bool = True,
        reduce_output: str | None = "avg",
        bcast_loss: bool = True,
        num_micro_batches: int | None = None,
    ) -> Any:
        """Evaluates the micro batches of a batch. Collective.

        Returns the mean loss, or the outputs if compute_loss is off. reduce_output: "avg", or None for a list of values by micro batch,
        on the last stage. bcast_loss: whether all stages get the loss; only the last stage has outputs. return_logits: also returns the
        outputs of the last micro batch.
        """
        if reduce_output is not None and reduce_output.lower() != "avg":
            raise NotSupportedError(f"reduction type {reduce_output} not supported.")
        self.eval()
        stage = self._stage
        stage.begin(keeps_outputs=return_logits or not compute_loss)
        loss, losses = self._core.eval_batch(
            stage.reader(data_iter, self.batch_fn), compute_loss, reduce_output is not None, bcast_loss, num_micro_batches
        )
        outputs, stage.outputs = stage.outputs, []
        if not compute_loss:
            result = self._reduce_outputs(outputs, reduce_output) if self.is_last_stage() else None
        elif reduce_output is None:
            result = losses if self.is_last_stage() else None
        else:
            result = loss
        if return_logits:
            return result, outputs[-1] if outputs else None
        return result

    def _reduce_outputs(self, outputs: Sequence[Any], reduce: str | None = "avg") -> Any:
        """Returns the mean over micro batches and data-parallel ranks, value by value."""
        if reduce is None:
            return outputs
        leaves, structures = zip(*(pytree.tree_flatten(output) for output in outputs))
        means = [torch.stack(values).mean(dim=0) for values in zip(*leaves)]
        for mean in means:
            if self.is_data_parallel:
                dist.all_reduce(mean, group=self.data_parallel_group)
                mean /= self.dp_world_size
        return pytree.tree_unflatten(means, structures[0])

    def set_dataloader(self, loader: Iterable[Any]) -> None:
        """Reads from a loader, once. A RepeatingLoader restarts itself."""
        if self.is_first_stage() or self.is_last_stage():
            self.training_dataloader = loader
            self.data_iterator = iter(loader)

    def set_dataiterator(self, iterator: Iterator[Any]) -> None:
        """Reads from an iterator."""
        if self.is_first_stage() or self.is_last_stage():
            self.training_dataloader = None
            self.data_iterator = iterator

    def set_batch_fn(self, fn: Callable[[Any], Any]) -> None:
        """Applies the function to each micro batch before its use."""
        self.batch_fn = fn

    def set_has_attention_mask(self, value: object) -> None:
        """Changes nothing: masks are sent like other tensors."""
        assert isinstance(value, bool)
        self.has_attention_mask = value

    def reset_activation_shape(self) -> None:
        """Lets the stages exchange the shapes of activations again. Collective."""
        self._core.reset_activation_shape()

    def get_additional_losses(self) -> dict[str, torch.Tensor] | None:
        """Returns the means of the module's get_additional_losses() in the last train_batch(), or None."""
        return self._core.get_additional_losses() or None

    # --- calls of the other engine ---

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raises PipelineError: a pipeline's train_batch() does everything."""
        raise PipelineError("Only train_batch() is accessible in pipeline mode.")

    forward = backward = step = scale = allreduce_gradients = set_gradient_accumulation_boundary = _backward_epilogue = _refuse
