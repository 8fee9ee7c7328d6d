"""Provides optimizers, fused operators and the transformer layer, and lists DeepSpeed's ops."""

from typing import TYPE_CHECKING

from deepspeed._lazy import lazy
from deepspeed.ops import op_builder

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
    from deepspeed.ops.functional import *  # noqa: F403
    from deepspeed.ops.modules import *  # noqa: F403
    from deepspeed.ops.transformer import (
        DeepSpeedTransformerConfig as DeepSpeedTransformerConfig,
        DeepSpeedTransformerLayer as DeepSpeedTransformerLayer,
    )
else:
    _FUNCTIONS = (
        "add_layer_norm add_rms_norm bias_dropout_residual bias_gelu dropout embedding layer_norm linear_cross_entropy "
        "masked_softmax rms_norm rotary_embedding rotary_tables swiglu"
    )
    _MODULES = "Embedding LayerNorm LinearCrossEntropy RMSNorm RotaryEmbedding"
    __getattr__ = lazy(
        __name__,
        submodules=("adam", "adagrad", "functional", "lamb", "lion", "modules", "transformer"),
        names={
            "DeepSpeedTransformerLayer": "deepspeed.ops.transformer",
            "DeepSpeedTransformerConfig": "deepspeed.ops.transformer",
            **dict.fromkeys(_FUNCTIONS.split(), "deepspeed.ops.functional"),
            **dict.fromkeys(_MODULES.split(), "deepspeed.ops.modules"),
        },
    )
