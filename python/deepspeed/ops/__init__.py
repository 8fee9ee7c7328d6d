"""Provides optimizers, fused operators and the transformer layer, and lists DeepSpeed's ops."""

from typing import TYPE_CHECKING

from deepspeed._lazy import lazy
from deepspeed.ops import op_builder
from deepspeed.ops.functional import *  # noqa: F403
from deepspeed.ops.modules import *  # noqa: F403

__compatible_ops__ = {name: builder.is_compatible() for name, builder in op_builder.ALL_OPS.items()}
__compatible_ops__["deepspeed_not_implemented"] = False

if TYPE_CHECKING:
    from deepspeed.ops import (
        adagrad as adagrad,
        adam as adam,
        functional as functional,
        lamb as lamb,
        lion as lion,
        modules as modules,
        transformer as transformer,
    )
    from deepspeed.ops.transformer import (
        DeepSpeedTransformerConfig as DeepSpeedTransformerConfig,
        DeepSpeedTransformerLayer as DeepSpeedTransformerLayer,
    )
else:
    __getattr__ = lazy(
        __name__,
        submodules=("adam", "adagrad", "lamb", "lion", "transformer"),
        names={
            "DeepSpeedTransformerLayer": "deepspeed.ops.transformer",
            "DeepSpeedTransformerConfig": "deepspeed.ops.transformer",
        },
    )
