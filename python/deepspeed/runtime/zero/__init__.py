"""ZeRO."""
from deepspeed._lazy import lazy

_OF_PARAMETERS = (
    "GatheredParameters",
    "Init",
    "ZeroParamStatus",
    "ZeroParamType",
    "register_external_parameter",
    "unregister_external_parameter",
)

__getattr__ = lazy(
    __name__,
    submodules=("config", "linear", "offload_config", "partition_parameters", "stage3", "stage_1_and_2", "tiling", "utils"),
    names={
        **{name: f"{__name__}.partition_parameters" for name in _OF_PARAMETERS},
        "TiledLinear": f"{__name__}.tiling",
        "TiledLinearReturnBias": f"{__name__}.tiling",
        "unwrap_model_for_generation": f"{__name__}.unwrap_model",
    },
)
