"""ZeRO. Names are imported when they are asked for."""

from deepspeed._lazy import lazy

_PARAMETERS = "deepspeed.runtime.zero.partition_parameters"

__getattr__ = lazy(
    __name__,
    submodules=(
        "config",
        "leaf_module_config",
        "linear",
        "mics",
        "offload_config",
        "offload_states",
        "parameter_offload",
        "partition_parameters",
        "stage3",
        "stage_1_and_2",
        "tiling",
        "utils",
    ),
    names={
        "DeepSpeedTensorOverride": _PARAMETERS,
        "GatheredParameters": _PARAMETERS,
        "Init": _PARAMETERS,
        "ZeroParamStatus": _PARAMETERS,
        "ZeroParamType": _PARAMETERS,
        "register_external_parameter": _PARAMETERS,
        "unregister_external_parameter": _PARAMETERS,
        "DeepSpeedZeRoOffload": "deepspeed.runtime.zero.parameter_offload",
        "MiCS_Init": "deepspeed.runtime.zero.mics",
        "TiledLinear": "deepspeed.runtime.zero.tiling",
        "TiledLinearReturnBias": "deepspeed.runtime.zero.tiling",
        "unwrap_model_for_generation": "deepspeed.runtime.zero.stage3",
    },
)
