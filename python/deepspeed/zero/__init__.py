"""ZeRO: partitioned models."""
from deepspeed._lazy import lazy
from deepspeed.runtime.zero.partition_parameters import (
    GatheredParameters,
    Init,
    MiCS_Init,
    ZeroParamStatus,
    ZeroParamType,
    register_external_parameter,
    unregister_external_parameter,
)

__getattr__ = lazy(
    __name__,
    names={
        "TiledLinear": "deepspeed.runtime.zero.tiling",
        "TiledLinearReturnBias": "deepspeed.runtime.zero.tiling",
        "unwrap_model_for_generation": "deepspeed.runtime.zero.unwrap_model",
    },
)
