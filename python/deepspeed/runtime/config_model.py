"""Defines the base of config sections as pydantic models."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import torch
from pydantic import BaseModel, ConfigDict, field_serializer

from deepspeed.utils.logging import logger

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class DeepSpeedConfigModel(BaseModel):
    """Refuses unknown keys, drops "auto" values, and moves deprecated keys to their replacements.

    A deprecated field says in `json_schema_extra`: deprecated=True, new_param="section.key", new_param_fn (a function of the value),
    set_new_param=False if the value must not be moved, deprecated_msg.
    """

    model_config = ConfigDict(
        validate_default=True,
        validate_assignment=True,
        use_enum_values=True,
        populate_by_name=True,
        extra="forbid",
        arbitrary_types_allowed=True,
        protected_namespaces=(),
    )

    def __init__(self, strict: bool = False, **data: Any) -> None:
        if not strict:
            data = {key: value for key, value in data.items() if not _is_auto(key, value)}
        super().__init__(**data)
        for name, field in type(self).model_fields.items():
            extra = field.json_schema_extra
            if isinstance(extra, dict) and extra.get("deprecated") and name in self.model_fields_set:
                self._replace(name, extra)

    def _replace(self, name: str, extra: Mapping[str, Any]) -> None:
        new_name = extra.get("new_param", "")
        note = f", use {new_name}" if new_name else ""
        logger.warning(f"Config parameter {name} is deprecated{note}. {extra.get('deprecated_msg', '')}".rstrip())
        if not new_name or not extra.get("set_new_param", True):
            return
        value = extra.get("new_param_fn", lambda given: given)(getattr(self, name))
        delattr(self, name)
        *sections, key = new_name.split(".")
        section = functools.reduce(getattr, sections, self)
        assert key not in section.model_fields_set, f"the deprecated key {name!r} and {new_name!r}, which replaces it, are both given"
        setattr(section, key, value)

    @field_serializer("dtype", check_fields=False)
    def serialize_torch_dtype(dtype: torch.dtype) -> str:  # type: ignore[misc]  # pydantic takes it as a function
        return str(dtype)


def _is_auto(key: str, value: object) -> bool:
    return isinstance(value, str) and value == "auto" and key != "replace_method"


def get_config_default(config: type[BaseModel], field_name: str) -> Any:
    """Returns the default of a field in a model's class."""
    field = config.model_fields.get(field_name)
    assert field is not None, f"'{field_name}' is not a field in {config}"
    assert not field.is_required(), f"'{field_name}' is a required field and does not have a default value"
    return field.get_default()
