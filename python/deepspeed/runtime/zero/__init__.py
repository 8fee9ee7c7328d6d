"""Provides ZeRO. Names are imported on first use."""

from typing import TYPE_CHECKING

from deepspeed._lazy import lazy

_PARAMETERS = "deepspeed.runtime.zero.partition_parameters"

if TYPE_CHECKING:
    from deepspeed.runtime.zero import (
        config as config,
        leaf_module_config as leaf_module_config,
        linear as linear,
        mics as mics,
        offload_config as offload_config,
        offload_states as offload_states,
        parameter_offload as parameter_offload,
        partition_parameters as partition_parameters,
        stage3 as stage3,
        stage_1_and_2 as stage_1_and_2,
        tiling as tiling,
        utils as utils,
    )
    from deepspeed.runtime.zero.mics import MiCS_Init as MiCS_Init
    from deepspeed.runtime.zero.parameter_offload import DeepSpeedZeRoOffload as DeepSpeedZeRoOffload
    from deepspeed.runtime.zero.partition_parameters import (
        DeepSpeedTensorOverride as DeepSpeedTensorOverride,
        GatheredParameters as GatheredParameters,
        Init as Init,
        ZeroParamStatus as ZeroParamStatus,
        ZeroParamType as ZeroParamType,
        register_external_parameter as register_external_parameter,
        unregister_external_parameter as unregister_external_parameter,
    )
    from deepspeed.runtime.zero.stage3 import unwrap_model_for_generation as unwrap_model_for_generation
    from deepspeed.runtime.zero.tiling import TiledLinear as TiledLinear, TiledLinearReturnBias as TiledLinearReturnBias
else:
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
