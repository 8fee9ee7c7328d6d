"""Replaces the layers of a BERT by DeepSpeed's transformer layer."""

from typing import TYPE_CHECKING

from deepspeed._errors import not_supported
from deepspeed._lazy import lazy
from deepspeed.module_inject.inject import bert_weights, module_inject

_WAY_OUT = "inference engines do not exist; module_inject.module_inject() replaces the layers of a BERT for training"
replace_transformer_layer = not_supported("deepspeed.module_inject.replace_transformer_layer", _WAY_OUT)
revert_transformer_layer = not_supported("deepspeed.module_inject.revert_transformer_layer", _WAY_OUT)

if not TYPE_CHECKING:
    __getattr__ = lazy(__name__)

__all__ = ["bert_weights", "module_inject", "replace_transformer_layer", "revert_transformer_layer"]
