"""ZeRO: partitioned models. Names that are rarely used are imported when they are asked for."""

from deepspeed.runtime.zero import __getattr__  # noqa: F401
from deepspeed.runtime.zero.partition_parameters import (
    GatheredParameters,
    Init,
    ZeroParamStatus,
    ZeroParamType,
    make_whole,
    register_external_parameter,
    unregister_external_parameter,
)
