"""What a script asks an engine about its config and its counters."""

import types
from typing import List, Optional, Tuple

import torch
import torch.distributed as dist

from deepspeed.runtime.optimizer_names import DEEPSPEED_OPTIMIZERS


class EngineSettings:
    """Answers from the config as the core has resolved it, defaults included."""

    def _resolved(self):
        if self.__dict__.get("_resolved_config") is None:
            self.__dict__["_resolved_config"] = self._core.config()
        return self.__dict__["_resolved_config"]

    def _key(self, *path):
        value = self._resolved()
        for key in path:
            value = value[key]
        return value

    @property
    def _config(self):
        from deepspeed.runtime.config import DeepSpeedConfig

        return DeepSpeedConfig.of_resolved(self.config, self._resolved())

    # --- batches and counters ---

    micro_steps = property(lambda self: self._core.micro_steps())
    global_steps = property(lambda self: self._core.global_steps())
    global_samples = property(lambda self: self._core.global_samples())
    skipped_steps = property(lambda self: self._core.skipped_steps())
    dp_world_size = property(lambda self: dist.get_world_size(self.data_parallel_group))
    mp_world_size = property(lambda self: 1 if self.mpu is None else self.mpu.get_model_parallel_world_size())

    def train_batch_size(self) -> int:
        return self._core.get_batch_info()[0]

    def train_micro_batch_size_per_gpu(self) -> int:
        return self._core.get_batch_info()[1]

    def gradient_accumulation_steps(self) -> int:
        return self._core.get_batch_info()[2]

    def get_batch_info(self) -> Tuple[int, int, int]:
        """Returns (train batch, micro batch of a rank, accumulation steps)."""
        return self._core.get_batch_info()

    def set_train_batch_size(self, train_batch_size):
        """Changes the accumulation steps, so that the micro batch stays."""
        self._core.set_train_batch_size(train_batch_size)

    def set_train_micro_batch_size(self, micro_batch_size):
        """Keeps the accumulation steps, and changes the train batch with the micro batch."""
        self._core.set_train_micro_batch_size(micro_batch_size)

    def was_step_applied(self) -> bool:
        return self._core.was_step_applied()

    def get_global_grad_norm(self) -> Optional[float]:
        """Returns the L2 norm of the last update's gradients before clipping; None before the first one."""
        return self._core.get_global_grad_norm()

    @property
    def tput_timer(self):
        """Counts samples a second from the call that asks for it first; the core's own report is in the log."""
        if self._tput_timer is None:
            from deepspeed.utils.timer import ThroughputTimer

            self._tput_timer = ThroughputTimer(types.SimpleNamespace(**self._key("timers", "throughput")), self.train_batch_size())
        return self._tput_timer

    def get_lr(self) -> List[float]:
        """Returns the rate of each group: what the core's schedule or the script's has written there last."""
        if self.optimizer is None:
            return self._core.get_lr()
        return [group.get("lr", 0.0) for group in self.optimizer.param_groups]

    def get_mom(self):
        return self._core.get_mom()

    def get_type(self):
        return [group.get("type") for group in self.optimizer.param_groups] if self.optimizer is not None else []

    def set_lr(self, lr):
        self._core.set_lr(lr)
        if self.optimizer is not None:
            self.optimizer._pull()

    def loss_scale(self) -> float:
        return self._core.loss_scale()

    # --- precision ---

    def fp16_enabled(self) -> bool:
        return self._key("fp16", "enabled")

    def fp16_auto_cast(self):
        return self._key("fp16", "auto_cast")

    def bfloat16_enabled(self) -> bool:
        return self._key("bf16", "enabled")

    def amp_enabled(self):
        return False

    def amp_params(self):
        return None

    def torch_autocast_enabled(self):
        return self._key("torch_autocast", "enabled")

    def dynamic_loss_scale(self) -> bool:
        return self.fp16_enabled() and self._key("fp16", "loss_scale") == 0

    def initial_dynamic_scale(self):
        return 2 ** self._key("fp16", "initial_scale_power")

    @property
    def _dtype(self):
        return torch.float16 if self.fp16_enabled() else torch.bfloat16 if self.bfloat16_enabled() else torch.float32

    @property
    def _casts_inputs(self):
        return self.fp16_enabled() and self.fp16_auto_cast()

    def get_data_types(self):
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

    def mics_shard_size(self):
        return self._key("zero_optimization", "mics_shard_size")

    @property
    def _num_shards(self):
        """How many ranks hold everything once."""
        return self.mics_shard_size() if self.mics_shard_size() > 0 else self.dp_world_size

    def is_first_weights_partition_group(self) -> bool:
        """Returns whether this rank is one of those of stage 3 that hold the first copy of the weights, and save them."""
        return self.zero_optimization_partition_weights() and self._data_parallel_rank < self._num_shards

    def zero_gather_16bit_weights_on_model_save(self):
        return self._key("zero_optimization", "stage3_gather_16bit_weights_on_model_save")

    def zero_allow_untested_optimizer(self):
        return self._key("zero_allow_untested_optimizer")

    def zero_cpu_offload(self) -> bool:
        return self.zero_offload_optimizer_device() == "cpu"

    def zero_use_cpu_optimizer(self):
        return self.zero_offload_optimizer_device() in ("cpu", "nvme")

    def zero_offload_optimizer_device(self):
        return self._key("zero_optimization", "offload_optimizer", "device")

    def zero_offload_param_device(self):
        return self._key("zero_optimization", "offload_param", "device")

    # --- progressive layer drop ---

    def pld_enabled(self):
        return bool(self.pld_params() and self.pld_params()["enabled"])

    def pld_params(self):
        return self._resolved().get("progressive_layer_drop")

    def pld_theta(self):
        return self.pld_params()["theta"]

    def pld_gamma(self):
        return self.pld_params()["gamma"]

    def get_pld_theta(self) -> Optional[float]:
        """Returns the part of the layers that the next forward keeps; None without the section."""
        return self._core.get_pld_theta()

    # --- whether a section of the config is on ---

    def _is_enabled(self, section):
        return bool((self._resolved().get(section) or {}).get("enabled"))

    def flops_profiler_enabled(self):
        return self._is_enabled("flops_profiler")

    def elasticity_enabled(self):
        return self._is_enabled("elasticity")

    def eigenvalue_enabled(self):
        return self._is_enabled("eigenvalue")

    def curriculum_enabled_legacy(self):
        return self._is_enabled("curriculum_learning")

    def data_efficiency_enabled(self):
        return self._is_enabled("data_efficiency")

    def random_ltd_enabled(self):
        """Is false: the engine refuses configs that drop tokens."""
        return False

    # --- the rest ---

    has_moe_layers = False  # of experts that ranks share out
    inside_no_sync_ctxt = False

    @property
    def param_names(self):
        """Returns {parameter: name} of the module."""
        return {param: name for name, param in self._names.items()}

    def graph_harvesting(self):
        return self._key("graph_harvesting")

    def aio_config(self):
        return self._key("aio")

    def zero_offload_param(self):
        """Returns the section offload_param; None without it."""
        return self._config.zero_config.offload_param

    def zero_reduce_bucket_size(self):
        return self._key("zero_optimization", "reduce_bucket_size")

    def zero_allgather_partitions(self):
        return self._key("zero_optimization", "allgather_partitions")

    def zero_ignore_unused_parameters(self):
        return self._key("zero_optimization", "ignore_unused_parameters")

    def optimizer_name(self):
        if self.client_optimizer is not None:
            return type(self._plan.client).__name__
        section = self._resolved().get("optimizer")
        if not section:
            return None
        return section["type"].lower() if section["type"].lower() in DEEPSPEED_OPTIMIZERS else section["type"]

    @property
    def basic_optimizer(self):
        return self.optimizer.optimizer if self.optimizer is not None else None

    def optimizer_params(self):
        section = self._resolved().get("optimizer")
        return section["params"] if section else None

    def scheduler_name(self):
        section = self._resolved().get("scheduler")
        return section["type"] if section else None

    def scheduler_params(self):
        section = self._resolved().get("scheduler")
        return section["params"] if section else None

    def steps_per_print(self):
        return self.config.get("steps_per_print", 10)

    def gradient_clipping(self) -> float:
        return self._config.gradient_clipping

    @property
    def gradient_average(self) -> bool:
        """Whether the gradients of the ranks are averaged, else summed. What is assigned holds for the reductions from there on."""
        return self._core.gradient_average()

    @gradient_average.setter
    def gradient_average(self, averages):
        self._core.set_gradient_average(bool(averages))

    def gradient_predivide_factor(self):
        return self._key("gradient_predivide_factor")

    def prescale_gradients(self):
        return self._key("prescale_gradients")

    def postscale_gradients(self):
        return not self.prescale_gradients()

    def sparse_gradients_enabled(self):
        return self._key("sparse_gradients")

    @property
    def sparse_tensor_module_names(self):
        """The names of the embeddings' weights whose gradients may be sparse; load_checkpoint() takes over the file's."""
        return set(self._core.sparse_tensor_module_names())

    def wall_clock_breakdown(self):
        return self._key("wall_clock_breakdown")

    def memory_breakdown(self):
        return self._key("memory_breakdown")

    def log_level(self):
        return self._config.log_level

    def managed_gradient_accumulation(self):
        return self._config.managed_gradient_accumulation

    def dump_state(self):
        return self._key("dump_state")

    def dataloader_drop_last(self):
        return self._key("dataloader_drop_last")

    def communication_data_type(self):
        return self._key("communication_data_type")

    def load_universal_checkpoint(self):
        return self._key("checkpoint", "load_universal")

    def use_node_local_storage(self):
        return self._key("checkpoint", "use_node_local_storage")

    def checkpoint_tag_validation_enabled(self):
        return self._key("checkpoint", "tag_validation").lower() != "ignore"

    def checkpoint_tag_validation_fail(self):
        return self._key("checkpoint", "tag_validation").lower() == "fail"

    @property
    def device(self):
        return self._core.device()
