"""Answers a script's questions about an engine's config and counters."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, TypeVar

import torch
import torch.distributed as dist

from deepspeed._core import TrainingEngine
from deepspeed.runtime.engine_parts.ranks import EngineRanks
from deepspeed.runtime.optimizer_names import DEEPSPEED_OPTIMIZERS

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from deepspeed.runtime.config import DeepSpeedConfig
    from deepspeed.runtime.zero.offload_config import DeepSpeedZeroOffloadParamConfig
    from deepspeed.utils.timer import ThroughputTimer

_Value = TypeVar("_Value")


def _setting(kind: type[_Value], path: str) -> Callable[[EngineSettings], _Value]:
    """Makes a method that returns the config's value at a path, such as "fp16.enabled"."""

    def read(self: EngineSettings) -> _Value:
        return self._key(kind, path)

    read.__doc__ = f"Returns {path} of the config, or its default."
    return read


def _core_call(call: Callable[[TrainingEngine], _Value]) -> Callable[[EngineSettings], _Value]:
    """Makes a method that returns the result of a method of the core's engine."""

    def ask(self: EngineSettings) -> _Value:
        return call(self._core)

    ask.__doc__ = f"Returns {call.__name__}() of the core's engine."
    return ask


def _is_on(section: str) -> Callable[[EngineSettings], bool]:
    """Makes a method that tells whether a section is enabled; False without the section."""
    find = _optional(bool, section, "enabled")

    def read(self: EngineSettings) -> bool:
        return bool(find(self))

    read.__doc__ = f"Returns whether the section {section} of the config is enabled."
    return read


def _optional(kind: type[_Value], section: str, key: str) -> Callable[[EngineSettings], _Value | None]:
    """Makes a method that returns a key's value in a section; None without the section."""

    def read(self: EngineSettings) -> _Value | None:
        found: _Value | None = (self._resolved().get(section) or {}).get(key)
        return found

    read.__doc__ = f"Returns {section}.{key} of the config; None without the section."
    return read


class EngineSettings(EngineRanks):
    """Answers from the config as the core has resolved it, defaults included."""

    # --- the config's keys ---

    fp16_enabled = _setting(bool, "fp16.enabled")
    fp16_auto_cast = _setting(bool, "fp16.auto_cast")
    bfloat16_enabled = _setting(bool, "bf16.enabled")
    torch_autocast_enabled = _setting(bool, "torch_autocast.enabled")
    mics_shard_size = _setting(int, "zero_optimization.mics_shard_size")
    zero_gather_16bit_weights_on_model_save = _setting(bool, "zero_optimization.stage3_gather_16bit_weights_on_model_save")
    zero_offload_optimizer_device = _setting(str, "zero_optimization.offload_optimizer.device")
    zero_offload_param_device = _setting(str, "zero_optimization.offload_param.device")
    zero_reduce_bucket_size = _setting(int, "zero_optimization.reduce_bucket_size")
    zero_allgather_partitions = _setting(bool, "zero_optimization.allgather_partitions")
    zero_ignore_unused_parameters = _setting(bool, "zero_optimization.ignore_unused_parameters")
    zero_allow_untested_optimizer = _setting(bool, "zero_allow_untested_optimizer")
    pld_theta = _setting(float, "progressive_layer_drop.theta")
    pld_gamma = _setting(float, "progressive_layer_drop.gamma")
    graph_harvesting = _setting(bool, "graph_harvesting")
    aio_config = _setting(dict, "aio")
    gradient_predivide_factor = _setting(float, "gradient_predivide_factor")
    prescale_gradients = _setting(bool, "prescale_gradients")
    sparse_gradients_enabled = _setting(bool, "sparse_gradients")
    wall_clock_breakdown = _setting(bool, "wall_clock_breakdown")
    memory_breakdown = _setting(bool, "memory_breakdown")
    dump_state = _setting(bool, "dump_state")
    dataloader_drop_last = _setting(bool, "dataloader_drop_last")
    load_universal_checkpoint = _setting(bool, "checkpoint.load_universal")
    use_node_local_storage = _setting(bool, "checkpoint.use_node_local_storage")

    pld_enabled = _is_on("progressive_layer_drop")
    flops_profiler_enabled = _is_on("flops_profiler")
    elasticity_enabled = _is_on("elasticity")
    eigenvalue_enabled = _is_on("eigenvalue")
    curriculum_enabled_legacy = _is_on("curriculum_learning")
    data_efficiency_enabled = _is_on("data_efficiency")

    optimizer_params = _optional(dict, "optimizer", "params")
    scheduler_name = _optional(str, "scheduler", "type")
    scheduler_params = _optional(dict, "scheduler", "params")

    # --- what the core's engine knows ---

    get_batch_info = _core_call(TrainingEngine.get_batch_info)  # (train batch, micro batch of a rank, accumulation steps)
    was_step_applied = _core_call(TrainingEngine.was_step_applied)
    get_global_grad_norm = _core_call(TrainingEngine.get_global_grad_norm)  # before clipping; None before the first update
    get_mom = _core_call(TrainingEngine.get_mom)
    loss_scale = _core_call(TrainingEngine.loss_scale)
    zero_optimization_stage = _core_call(TrainingEngine.zero_optimization_stage)
    get_pld_theta = _core_call(TrainingEngine.get_pld_theta)  # share of layers that the next forward keeps; None without the section

    # --- constants: what no config turns on ---

    has_moe_layers = False  # True for experts that ranks share, which do not exist here
    inside_no_sync_ctxt = False

    def amp_enabled(self) -> bool:
        return False

    def amp_params(self) -> None:
        return None

    def random_ltd_enabled(self) -> bool:
        """Returns False: the engine refuses configs that drop tokens."""
        return False

    # --- how the config is read ---

    def _resolved(self) -> dict[str, Any]:
        if self.__dict__.get("_resolved_config") is None:
            self.__dict__["_resolved_config"] = self._core.config()
        resolved: dict[str, Any] = self.__dict__["_resolved_config"]
        return resolved

    def _key(self, kind: type[_Value], path: str) -> _Value:
        """Returns the resolved config's value at a path. It has this type, unless it is null."""
        value: Any = self._resolved()
        for key in path.split("."):
            value = value[key]
        found: _Value = value
        return found

    @property
    def _config(self) -> DeepSpeedConfig:
        from deepspeed.runtime.config import DeepSpeedConfig

        return DeepSpeedConfig.of_resolved(self.config, self._resolved())

    # --- batches and counters ---

    @property
    def micro_steps(self) -> int:
        return self._core.micro_steps()

    @property
    def global_steps(self) -> int:
        return self._core.global_steps()

    @property
    def global_samples(self) -> int:
        return self._core.global_samples()

    @property
    def skipped_steps(self) -> int:
        return self._core.skipped_steps()

    @property
    def dp_world_size(self) -> int:
        return dist.get_world_size(self.data_parallel_group)

    @property
    def mp_world_size(self) -> int:
        return 1 if self.mpu is None else self.mpu.get_model_parallel_world_size()

    def train_batch_size(self) -> int:
        return self._core.get_batch_info()[0]

    def train_micro_batch_size_per_gpu(self) -> int:
        return self._core.get_batch_info()[1]

    def gradient_accumulation_steps(self) -> int:
        return self._core.get_batch_info()[2]

    def set_train_batch_size(self, train_batch_size: int) -> None:
        """Changes the accumulation steps to reach a train batch size. The micro batch stays.

        A window that has begun keeps its own steps.
        """
        self._core.set_train_batch_size(train_batch_size)

    def set_train_micro_batch_size(self, micro_batch_size: int) -> None:
        """Changes the micro batch size, and with it the train batch size. The accumulation steps stay."""
        self._core.set_train_micro_batch_size(micro_batch_size)

    @property
    def tput_timer(self) -> ThroughputTimer:
        """Counts samples per second from the first call on. The core's own report is in the log."""
        if self._tput_timer is None:
            from deepspeed.utils.timer import ThroughputTimer

            self._tput_timer = ThroughputTimer(types.SimpleNamespace(**self._key(dict, "timers.throughput")), self.train_batch_size())
        return self._tput_timer

    def get_lr(self) -> list[float]:
        """Returns each group's learning rate, as the core's or the script's schedule wrote it last."""
        if self.optimizer is None:
            return self._core.get_lr()
        return [group.get("lr", 0.0) for group in self.optimizer.param_groups]

    def get_type(self) -> list[Any]:
        return [group.get("type") for group in self.optimizer.param_groups] if self.optimizer is not None else []

    def set_lr(self, lr: float) -> None:
        if self.optimizer is None:
            self._core.set_lr(lr)
            return
        with self.optimizer._showing():
            self._core.set_lr(lr)

    # --- precision ---

    def dynamic_loss_scale(self) -> bool:
        return self.fp16_enabled() and self._key(float, "fp16.loss_scale") == 0

    def initial_dynamic_scale(self) -> int:
        scale: int = 2 ** self._key(int, "fp16.initial_scale_power")
        return scale

    @property
    def _dtype(self) -> torch.dtype:
        return torch.float16 if self.fp16_enabled() else torch.bfloat16 if self.bfloat16_enabled() else torch.float32

    @property
    def _casts_inputs(self) -> bool:
        return self.fp16_enabled() and self.fp16_auto_cast()

    def get_data_types(self) -> tuple[torch.dtype, torch.dtype]:
        """Returns (dtype of the model, dtype in which gradients are accumulated)."""
        name = self._key(str, "data_types.grad_accum_dtype")
        names = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
        return self._dtype, names.get(name, self._dtype)

    # --- ZeRO ---

    def zero_optimization(self) -> bool:
        return self.zero_optimization_stage() > 0

    def zero_optimization_partition_gradients(self) -> bool:
        return self.zero_optimization_stage() >= 2

    def zero_optimization_partition_weights(self) -> bool:
        return self.zero_optimization_stage() >= 3

    @property
    def _num_shards(self) -> int:
        """Counts the ranks that together hold everything once."""
        return self.mics_shard_size() if self.mics_shard_size() > 0 else self.dp_world_size

    def is_first_weights_partition_group(self) -> bool:
        """Returns whether this rank holds, and saves, part of the first copy of stage 3's weights."""
        return self.zero_optimization_partition_weights() and self._data_parallel_rank < self._num_shards

    def zero_cpu_offload(self) -> bool:
        return self.zero_offload_optimizer_device() == "cpu"

    def zero_use_cpu_optimizer(self) -> bool:
        return self.zero_offload_optimizer_device() in ("cpu", "nvme")

    def pld_params(self) -> dict[str, Any] | None:
        return self._resolved().get("progressive_layer_drop")

    # --- the rest ---

    @property
    def param_names(self) -> dict[torch.Tensor, str]:
        """Returns {parameter: name} of the module."""
        return {param: name for name, param in self._names.items()}

    def zero_offload_param(self) -> DeepSpeedZeroOffloadParamConfig | None:
        """Returns the section offload_param; None without it."""
        section: DeepSpeedZeroOffloadParamConfig | None = self._config.zero_config.offload_param
        return section

    def optimizer_name(self) -> str | None:
        if self.client_optimizer is not None:
            return type(self._plan.client).__name__
        section = self._resolved().get("optimizer")
        if not section:
            return None
        name: str = section["type"]
        return name.lower() if name.lower() in DEEPSPEED_OPTIMIZERS else name

    @property
    def basic_optimizer(self) -> torch.optim.Optimizer | None:
        return self.optimizer.optimizer if self.optimizer is not None else None

    def steps_per_print(self) -> int | None:
        every: int | None = self.config.get("steps_per_print", 10)
        return every

    def gradient_clipping(self) -> float:
        limit: float = self._config.gradient_clipping
        return limit

    @property
    def gradient_average(self) -> bool:
        """Tells whether gradients are averaged over the ranks; otherwise they are summed. An assigned value holds for later reductions."""
        return self._core.gradient_average()

    @gradient_average.setter
    def gradient_average(self, averages: bool) -> None:
        self._core.set_gradient_average(bool(averages))

    def postscale_gradients(self) -> bool:
        return not self.prescale_gradients()

    @property
    def sparse_tensor_module_names(self) -> set[str]:
        """Names the embedding weights that may have sparse gradients. load_checkpoint() takes over the file's names."""
        return set(self._core.sparse_tensor_module_names())

    def log_level(self) -> str | None:
        return self._config.log_level

    def managed_gradient_accumulation(self) -> Any:
        return self._config.managed_gradient_accumulation

    def communication_data_type(self) -> Any:
        return self._resolved()["communication_data_type"]

    def checkpoint_tag_validation_enabled(self) -> bool:
        return self._key(str, "checkpoint.tag_validation").lower() != "ignore"

    def checkpoint_tag_validation_fail(self) -> bool:
        return self._key(str, "checkpoint.tag_validation").lower() == "fail"

    @property
    def device(self) -> torch.device:
        return self._core.device()
