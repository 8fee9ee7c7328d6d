"""Converts a module's dtypes as the config says. The core does this to the model of initialize(); here it works for any module."""

from __future__ import annotations

import torch

from deepspeed.runtime.engine_parts.settings import EngineSettings

_BY_NAME = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


class EngineMixedPrecision(EngineSettings):
    """Answers from the sections fp16, bf16 and data_types, and converts engine.module as they say."""

    def _mixed_precision_dtypes(self) -> tuple[torch.dtype | None, torch.dtype | None]:
        """Returns (dtype of parameters, dtype of floating-point buffers). None leaves them unchanged."""
        param_dtype = torch.float16 if self.fp16_enabled() else torch.bfloat16 if self.bfloat16_enabled() else None
        return param_dtype, _BY_NAME.get(self._config.buffer_dtype)

    def _assert_valid_mixed_precision_config(self) -> None:
        """Raises AssertionError if data_types.param_dtype contradicts the sections fp16 and bf16."""
        wanted = self._config.param_dtype
        chosen = "fp16" if self.fp16_enabled() else "bf16" if self.bfloat16_enabled() else "fp32"
        assert wanted in (None, chosen), f"data_types.param_dtype: got {wanted}, expected {chosen}, as the sections fp16 and bf16 say"

    def _cast_module_mixed_precision(
        self, param_dtype: torch.dtype | None, buffer_dtype: torch.dtype | None, is_zero_init_model: bool
    ) -> None:
        """Converts the module's floating-point parameters and buffers. None leaves them.

        Parameters that zero.Init has made are left, too.
        """
        tensors = [] if is_zero_init_model else [(param, param_dtype) for param in self.module.parameters()]
        for tensor, dtype in tensors + [(buffer, buffer_dtype) for buffer in self.module.buffers()]:
            if dtype is not None and tensor.is_floating_point():
                tensor.data = tensor.data.to(dtype)
