"""ZeRO: partitioned models. Names that are rarely used are imported when they are asked for."""
from deepspeed.runtime.zero import __getattr__  # noqa: F401
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
