"""Optimizers, and which of DeepSpeed's ops there are."""

from typing import TYPE_CHECKING

from deepspeed._lazy import lazy
from deepspeed.ops import op_builder

__compatible_ops__ = {name: builder.is_compatible() for name, builder in op_builder.ALL_OPS.items()}
__compatible_ops__["deepspeed_not_implemented"] = False

if TYPE_CHECKING:
    from deepspeed.ops import adagrad as adagrad, adam as adam, lamb as lamb, lion as lion
else:
    __getattr__ = lazy(
        __name__,
        submodules=("adam", "adagrad", "lamb", "lion", "transformer", "sparse_attention", "fp_quantizer"),
        names={"DeepSpeedTransformerLayer": "deepspeed.ops.transformer", "DeepSpeedTransformerConfig": "deepspeed.ops.transformer"},
    )
