"""Provides BERT's transformer layer over fused kernels."""

from typing import TYPE_CHECKING

from deepspeed._lazy import lazy
from deepspeed.ops.transformer.transformer import DeepSpeedTransformerConfig, DeepSpeedTransformerLayer, TransformerConfig

__all__ = ["DeepSpeedTransformerConfig", "DeepSpeedTransformerLayer", "TransformerConfig"]

if not TYPE_CHECKING:
    __getattr__ = lazy(__name__)
