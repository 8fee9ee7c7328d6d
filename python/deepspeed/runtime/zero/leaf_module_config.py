"""Defines section leaf_module of zero_optimization as a pydantic model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field, model_validator

from deepspeed.runtime.config_model import DeepSpeedConfigModel

if TYPE_CHECKING:
    from typing import Any

_MODELS = "transformers.models."
DEFAULT_LEAF_MODULE_CLASSES = [
    _MODELS + "mixtral.modeling_mixtral.MixtralSparseMoeBlock",
    _MODELS + "qwen2_moe.modeling_qwen2_moe.Qwen2MoeSparseMoeBlock",
    _MODELS + "qwen3_moe.modeling_qwen3_moe.Qwen3MoeSparseMoeBlock",
]
DEFAULT_LEAF_MODULE_NAMES: list[str] = []
DEFAULT_LEAF_MODULE_NAME_SUFFIXES: list[str] = []


class DeepSpeedZeroLeafModuleConfig(DeepSpeedConfigModel):
    """Names modules whose parameters are gathered together: by class, name or suffix."""

    classes: list[str] = Field(default_factory=lambda: list(DEFAULT_LEAF_MODULE_CLASSES))
    names: list[str] = Field(default_factory=lambda: list(DEFAULT_LEAF_MODULE_NAMES))
    name_suffixes: list[str] = Field(default_factory=lambda: list(DEFAULT_LEAF_MODULE_NAME_SUFFIXES))

    @model_validator(mode="before")
    def _as_lists(cls, values: object) -> dict[str, Any]:
        """Turns a text into a list of one, and removes repeated entries."""
        if values is None:
            return {}
        if not isinstance(values, dict):
            raise TypeError(f"leaf_module: got {type(values).__name__}, expected a mapping")
        made = dict(values)
        for key in ("classes", "names", "name_suffixes"):
            if key in made:
                given = [made[key]] if isinstance(made[key], str) else made[key]
                made[key] = list(dict.fromkeys(map(str, given)))
        return made
