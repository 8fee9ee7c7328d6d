"""Defines section zero_optimization as a pydantic model with DeepSpeed's keys and defaults."""

from __future__ import annotations

import enum
import sys
from typing import TYPE_CHECKING, Any

from pydantic import Field, model_validator

from deepspeed.runtime.config_model import DeepSpeedConfigModel
from deepspeed.runtime.config_utils import pp_int
from deepspeed.runtime.zero.leaf_module_config import DeepSpeedZeroLeafModuleConfig
from deepspeed.runtime.zero.offload_config import (
    DeepSpeedZeroOffloadOptimizerConfig,
    DeepSpeedZeroOffloadParamConfig,
    OffloadDeviceEnum,
)
from deepspeed.utils.logging import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from typing_extensions import Self

ZERO_OPTIMIZATION = "zero_optimization"


class ZeroStageEnum(int, enum.Enum):
    """Names what a stage partitions."""

    disabled = 0
    optimizer_states = 1
    gradients = 2
    weights = 3
    max_stage = 3  # noqa: PIE796  -- an alias


def _moved(new_name: str, config_class: Callable[..., Any]) -> dict[str, Any]:
    """Describes an older flag that turned on offloading to the CPU."""
    return {
        "deprecated": True,
        "new_param": new_name,
        "new_param_fn": lambda value: config_class(device=OffloadDeviceEnum.cpu) if value else None,
    }


class DeepSpeedZeroConfig(DeepSpeedConfigModel):
    """Holds the keys of ZeRO. Keys with the prefix stage3_ in a config have attributes without it."""

    stage: ZeroStageEnum = 0  # type: ignore[assignment]  # validated, as all defaults are
    contiguous_gradients: bool = True
    reduce_scatter: bool = True
    reduce_bucket_size: int = Field(pp_int(5e8), gt=0)
    use_multi_rank_bucket_allreduce: bool = True
    allgather_partitions: bool = True
    allgather_bucket_size: int = Field(pp_int(5e8), ge=0)
    overlap_comm: bool | None = None  # by default True at stage 3 only
    load_from_fp32_weights: bool = True
    elastic_checkpoint: bool = False

    offload_param: DeepSpeedZeroOffloadParamConfig | None = None
    offload_optimizer: DeepSpeedZeroOffloadOptimizerConfig | None = None
    zenflow: dict[str, Any] | None = None
    sub_group_size: int = Field(pp_int(1e9), ge=0)
    cpu_offload_param: bool | None = Field(None, json_schema_extra=_moved("offload_param", DeepSpeedZeroOffloadParamConfig))
    cpu_offload_use_pin_memory: bool | None = Field(
        None, json_schema_extra={"deprecated": True, "new_param": "offload_param or offload_optimizer", "set_new_param": False}
    )
    cpu_offload: bool | None = Field(None, json_schema_extra=_moved("offload_optimizer", DeepSpeedZeroOffloadOptimizerConfig))

    prefetch_bucket_size: int = Field(pp_int(5e7), ge=0, alias="stage3_prefetch_bucket_size")
    param_persistence_threshold: int = Field(pp_int(1e5), ge=0, alias="stage3_param_persistence_threshold")
    model_persistence_threshold: int = Field(pp_int(sys.maxsize, "sys.maxsize"), ge=0, alias="stage3_model_persistence_threshold")
    max_live_parameters: int = Field(pp_int(1e9), ge=0, alias="stage3_max_live_parameters")
    max_reuse_distance: int = Field(pp_int(1e9), ge=0, alias="stage3_max_reuse_distance")
    gather_16bit_weights_on_model_save: bool = Field(False, alias="stage3_gather_16bit_weights_on_model_save")
    module_granularity_threshold: int = Field(pp_int(0), alias="stage3_module_granularity_threshold")
    use_all_reduce_for_fetch_params: bool = Field(False, alias="stage3_use_all_reduce_for_fetch_params")
    allgather_sequential: bool = Field(False, alias="stage3_allgather_sequential")
    stage3_gather_fp16_weights_on_model_save: bool = Field(
        False, json_schema_extra={"deprecated": True, "new_param": "gather_16bit_weights_on_model_save"}
    )

    ignore_unused_parameters: bool = True
    legacy_stage1: bool = False
    round_robin_gradients: bool = False
    zero_hpz_partition_size: int = Field(1, ge=0)
    zero_quantized_weights: bool = False
    zero_quantized_nontrainable_weights: bool = False
    zero_quantized_weights_dtype: str = "int8"
    zero_quantized_gradients: bool = False
    zeropp_loco_param: dict[str, Any] | None = None
    mics_shard_size: int = -1
    mics_hierarchical_params_gather: bool = False
    memory_efficient_linear: bool = True
    pipeline_loading_checkpoint: bool = False
    override_module_apply: bool = True
    log_trace_cache_warnings: bool = False
    enable_sanity_checks: bool = False
    save_muon_momentum_buffer_in_memory: bool = False
    leaf_module: DeepSpeedZeroLeafModuleConfig = Field(default_factory=DeepSpeedZeroLeafModuleConfig)

    @model_validator(mode="after")
    def _fill_in(self) -> Self:
        if self.overlap_comm is None:
            self.overlap_comm = self.stage == ZeroStageEnum.weights
        if self.elastic_checkpoint:
            logger.warning("elastic_checkpoint: elastic checkpointing is deprecated, since checkpoints of any number of ranks load")
        ratio = self.offload_optimizer.ratio if self.offload_optimizer else 1.0
        assert ratio == 1.0 or self.stage == ZeroStageEnum.weights, "offload_optimizer.ratio below 1 is for stage 3 alone"
        return self


def get_zero_config(param_dict: Mapping[str, Any]) -> DeepSpeedZeroConfig:
    """Returns the section of a config, which is a flag in older configs."""
    section = param_dict.get(ZERO_OPTIMIZATION, {})
    if isinstance(section, bool):
        logger.warning(f'{ZERO_OPTIMIZATION}: a flag is an older form, write {{"stage": {int(section)}}}')
        section = {"stage": 1, "allgather_bucket_size": param_dict.get("allgather_size", 5e8)} if section else {}
    return DeepSpeedZeroConfig(**section)
