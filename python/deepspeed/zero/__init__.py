"""Provides ZeRO: partitioned models. Rarely used names are imported on first use."""

from typing import TYPE_CHECKING

from deepspeed.runtime.zero.partition_parameters import (
    GatheredParameters,
    Init,
    ZeroParamStatus,
    ZeroParamType,
    make_whole,
    register_external_parameter,
    unregister_external_parameter,
)

__all__ = [
    "GatheredParameters",
    "Init",
    "ZeroParamStatus",
    "ZeroParamType",
    "make_whole",
    "register_external_parameter",
    "unregister_external_parameter",
]

if TYPE_CHECKING:
    from deepspeed.runtime.zero import (
        DeepSpeedTensorOverride as DeepSpeedTensorOverride,
        DeepSpeedZeRoOffload as DeepSpeedZeRoOffload,
        MiCS_Init as MiCS_Init,
        TiledLinear as TiledLinear,
        TiledLinearReturnBias as TiledLinearReturnBias,
        unwrap_model_for_generation as unwrap_model_for_generation,
    )
else:
    from deepspeed.runtime.zero import __getattr__ as __getattr__
