"""What a script asks an engine about its config and its counters."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from deepspeed.runtime.engine_parts.ranks import EngineRanks
from deepspeed.runtime.optimizer_names import DEEPSPEED_OPTIMIZERS

if TYPE_CHECKING:
    from typing import Any

    from deepspeed.runtime.config import DeepSpeedConfig
    from deepspeed.runtime.zero.offload_config import DeepSpeedZeroOffloadParamConfig
    from deepspeed.utils.timer import ThroughputTimer


class EngineSettings(EngineRanks):
    """Answers from the config as the core has resolved it, defaults included."""

    def _resolved(self) -> dict[str, Any]:
        if self.__dict__.get("_resolved_config") is None:
            self.__dict__["_resolved_config"] = self._core.config()
        resolved: dict[str, Any] = self.__dict__["_resolved_config"]
        return resolved

    def _key(self, *path: str) -> Any:
        value = self._resolved()
        for key in path:
            value = value[key]
        return value

    def _flag(self, *path: str) -> bool:
        value: bool = self._key(*path)
        return value

    def _whole(self, *path: str) -> int:
        value: int = self._key(*path)
        return value

    def _real(self, *path: str) -> float:
        value: float = self._key(*path)
        return value

    def _text(self, *path: str) -> str:
        value: str = self._key(*path)
        return value

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

    def get_batch_info(self) -> tuple[int, int, int]:
        """Returns (train batch, micro batch of a rank, accumulation steps)."""
        return self._core.get_batch_info()

    def set_train_batch_size(self, train_batch_size: int) -> None:
        """Changes the accumulation steps, so that the micro batch stays; an accumulation window that has begun keeps its own."""
        self._core.set_train_batch_size(train_batch_size)

    def set_train_micro_batch_size(self, micro_batch_size: int) -> None:
        """Keeps the accumulation steps, and changes the train batch with the micro batch."""
        self._core.set_train_micro_batch_size(micro_batch_size)

    def was_step_applied(self) -> bool:
        return self._core.was_step_applied()

    def get_global_grad_norm(self) -> float | None:
        """Returns the L2 norm of the last update's gradients before clipping; None before the first one."""
        return self._core.get_global_grad_norm()

    @property
    def tput_timer(self) -> ThroughputTimer:
        """Counts samples a second from the call that asks for it first; the core's own report is in the log."""
        if self._tput_timer is None:
            from deepspeed.utils.timer import ThroughputTimer

            self._tput_timer = ThroughputTimer(types.SimpleNamespace(**self._key("timers", "throughput")), self.train_batch_size())
        return self._tput_timer

    def get_lr(self) -> list[float]:
        """Returns the rate of each group: what the core's schedule or the script's has written there last."""
        if self.optimizer is None:
            return self._core.get_lr()
        return [group.get("lr", 0.0) for group in self.optimizer.param_groups]

    def get_mom(self) -> list[tuple[float, float]]:
        return self._core.get_mom()

    def get_type(self) -> list[Any]:
        return [group.get("type") for group in self.optimizer.param_groups] if self.optimizer is not None else []

    def set_lr(self, lr: float) -> None:
        if self.optimizer is None:
            self._core.set_lr(lr)
            return
        with self.optimizer._showing():
            self._core.set_lr(lr)

    def loss_scale(self) -> float:
        return self._core.loss_scale()

    # --- precision ---

    def fp16_enabled(self) -> bool:
        return self._flag("fp16", "enabled")

    def fp16_auto_cast(self) -> bool:
        return self._flag("fp16", "auto_cast")

    def bfloat16_enabled(self) -> bool:
        return self._flag("bf16", "enabled")

    def amp_enabled(self) -> bool:
        return False

    def amp_params(self) -> None:
        return None

    def torch_autocast_enabled(self) -> bool:
        return self._flag("torch_autocast", "enabled")

    def dynamic_loss_scale(self) -> bool:
        return self.fp16_enabled() and self._key("fp16", "loss_scale") == 0

    def initial_dynamic_scale(self) -> int:
        scale: int = 2 ** self._whole("fp16", "initial_scale_power")
        return scale

    @property
    def _dtype(self) -> torch.dtype:
        return torch.float16 if self.fp16_enabled() else torch.bfloat16 if self.bfloat16_enabled() else torch.float32

    @property
    def _casts_inputs(self) -> bool:
        return self.fp16_enabled() and self.fp16_auto_cast()

    def get_data_types(self) -> tuple[torch.dtype, torch.dtype]:
        """Returns (dtype of the model, dtype in which gradients are summed up)."""
        name = self._key("data_types", "grad_accum_dtype")
        names = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
        return self._dtype, names.get(name, self._dtype)

    # --- ZeRO ---

    def zero_optimization(self) -> bool:
        return self.zero_optimization_stage() > 0

    def zero_optimization_stage(self) -> int:
        return self._core.zero_optimization_stage()

    def zero_optimization_partition_gradients(self) -> bool:
        return self.zero_optimization_stage() >= 2

    def zero_optimization_partition_weights(self) -> bool:
        return self.zero_optimization_stage() >= 3

    def mics_shard_size(self) -> int:
        return self._whole("zero_optimization", "mics_shard_size")

    @property
    def _num_shards(self) -> int:
        """Counts the ranks that hold everything once."""
        return self.mics_shard_size() if self.mics_shard_size() > 0 else self.dp_world_size

    def is_first_weights_partition_group(self) -> bool:
        """Returns whether this rank is one of those of stage 3 that hold the first copy of the weights, and save them."""
        return self.zero_optimization_partition_weights() and self._data_parallel_rank < self._num_shards

    def zero_gather_16bit_weights_on_model_save(self) -> bool:
        return self._flag("zero_optimization", "stage3_gather_16bit_weights_on_model_save")

    def zero_allow_untested_optimizer(self) -> bool:
        return self._flag("zero_allow_untested_optimizer")

    def zero_cpu_offload(self) -> bool:
        return self.zero_offload_optimizer_device() == "cpu"

    def zero_use_cpu_optimizer(self) -> bool:
        return self.zero_offload_optimizer_device() in ("cpu", "nvme")

    def zero_offload_optimizer_device(self) -> str:
        return self._text("zero_optimization", "offload_optimizer", "device")

    def zero_offload_param_device(self) -> str:
        return self._text("zero_optimization", "offload_param", "device")

    # --- progressive layer drop ---

    def pld_enabled(self) -> bool:
        section = self.pld_params()
        return bool(section and section["enabled"])

    def pld_params(self) -> dict[str, Any] | None:
        return self._resolved().get("progressive_layer_drop")

    def pld_theta(self) -> float:
        return self._real("progressive_layer_drop", "theta")

    def pld_gamma(self) -> float:
        return self._real("progressive_layer_drop", "gamma")

    def get_pld_theta(self) -> float | None:
        """Returns the part of the layers that the next forward keeps; None without the section."""
        return self._core.get_pld_theta()

    # --- whether a section of the config is on ---

    def _is_enabled(self, section: str) -> bool:
        return bool((self._resolved().get(section) or {}).get("enabled"))

    def flops_profiler_enabled(self) -> bool:
        return self._is_enabled("flops_profiler")

    def elasticity_enabled(self) -> bool:
        return self._is_enabled("elasticity")

    def eigenvalue_enabled(self) -> bool:
        return self._is_enabled("eigenvalue")

    def curriculum_enabled_legacy(self) -> bool:
        return self._is_enabled("curriculum_learning")

    def data_efficiency_enabled(self) -> bool:
        return self._is_enabled("data_efficiency")

    def random_ltd_enabled(self) -> bool:
        """Returns False: the engine refuses configs that drop tokens."""
        return False

    # --- the rest ---

    has_moe_layers = False  # of experts that ranks share out
    inside_no_sync_ctxt = False

    @property
    def param_names(self) -> dict[torch.Tensor, str]:
        """Returns {parameter: name} of the module."""
        return {param: name for name, param in self._names.items()}

    def graph_harvesting(self) -> bool:
        return self._flag("graph_harvesting")

    def aio_config(self) -> dict[str, Any]:
        section: dict[str, Any] = self._key("aio")
        return section

    def zero_offload_param(self) -> DeepSpeedZeroOffloadParamConfig | None:
        """Returns the section offload_param; None without it."""
        section: DeepSpeedZeroOffloadParamConfig | None = self._config.zero_config.offload_param
        return section

    def zero_reduce_bucket_size(self) -> int:
        return self._whole("zero_optimization", "reduce_bucket_size")

    def zero_allgather_partitions(self) -> bool:
        return self._flag("zero_optimization", "allgather_partitions")

    def zero_ignore_unused_parameters(self) -> bool:
        return self._flag("zero_optimization", "ignore_unused_parameters")

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

    def optimizer_params(self) -> dict[str, Any] | None:
        section = self._resolved().get("optimizer")
        return section["params"] if section else None

    def scheduler_name(self) -> str | None:
        section = self._resolved().get("scheduler")
        return section["type"] if section else None

    def scheduler_params(self) -> dict[str, Any] | None:
        section = self._resolved().get("scheduler")
        return section["params"] if section else None

    def steps_per_print(self) -> int | None:
        every: int | None = self.config.get("steps_per_print", 10)
        return every

    def gradient_clipping(self) -> float:
        limit: float = self._config.gradient_clipping
        return limit

    @property
    def gradient_average(self) -> bool:
        """Tells whether the gradients of the ranks are averaged, else summed. What is assigned holds for the reductions from there on."""
        return self._core.gradient_average()

    @gradient_average.setter
    def gradient_average(self, averages: bool) -> None:
        self._core.set_gradient_average(bool(averages))

    def gradient_predivide_factor(self) -> float:
        return self._real("gradient_predivide_factor")

    def prescale_gradients(self) -> bool:
        return self._flag("prescale_gradients")

    def postscale_gradients(self) -> bool:
        return not self.prescale_gradients()

    def sparse_gradients_enabled(self) -> bool:
        return self._flag("sparse_gradients")

    @property
    def sparse_tensor_module_names(self) -> set[str]:
        """Names the embeddings' weights whose gradients may be sparse; load_checkpoint() takes over the file's."""
        return set(self._core.sparse_tensor_module_names())

    def wall_clock_breakdown(self) -> bool:
        return self._flag("wall_clock_breakdown")

    def memory_breakdown(self) -> bool:
        return self._flag("memory_breakdown")

    def log_level(self) -> str | None:
        return self._config.log_level

    def managed_gradient_accumulation(self) -> Any:
        return self._config.managed_gradient_accumulation

    def dump_state(self) -> bool:
        return self._flag("dump_state")

    def dataloader_drop_last(self) -> bool:
        return self._flag("dataloader_drop_last")

    def communication_data_type(self) -> Any:
        return self._key("communication_data_type")

    def load_universal_checkpoint(self) -> bool:
        return self._flag("checkpoint", "load_universal")

    def use_node_local_storage(self) -> bool:
        return self._flag("checkpoint", "use_node_local_storage")

    def checkpoint_tag_validation_enabled(self) -> bool:
        return self._text("checkpoint", "tag_validation").lower() != "ignore"

    def checkpoint_tag_validation_fail(self) -> bool:
        return self._text("checkpoint", "tag_validation").lower() == "fail"

    @property
    def device(self) -> torch.device:
        return self._core.device()
