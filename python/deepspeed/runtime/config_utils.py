"""Helps with configs. DeepSpeedConfigModel needs pydantic, which is imported on first use."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from deepspeed._config import dict_raise_error_on_duplicate_keys as dict_raise_error_on_duplicate_keys
from deepspeed._lazy import lazy

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from typing_extensions import Self

if TYPE_CHECKING:
    from deepspeed.runtime.config_model import DeepSpeedConfigModel as DeepSpeedConfigModel, get_config_default as get_config_default
else:
    __getattr__ = lazy(
        __name__, names={"DeepSpeedConfigModel": "deepspeed.runtime.config_model", "get_config_default": "deepspeed.runtime.config_model"}
    )


class pp_int(int):
    """Prints a whole number with commas, or as a text of its own."""

    custom_print_str: str | None

    def __new__(cls, val: float, custom_print_str: str | None = None) -> Self:
        made = super().__new__(cls, val)
        made.custom_print_str = custom_print_str
        return made

    def __repr__(self) -> str:
        return self.custom_print_str or f"{int(self):,}"


class DeepSpeedConfigObject:
    """Prints an object as JSON of its attributes."""

    def repr(self) -> dict[str, Any]:
        return self.__dict__

    def __repr__(self) -> str:
        return json.dumps(self.__dict__, sort_keys=True, indent=4, default=str)


def get_scalar_param(param_dict: Mapping[str, Any], param_name: str, param_default_value: Any) -> Any:
    """Returns a key's value, or the default."""
    return param_dict.get(param_name, param_default_value)


get_list_param = get_dict_param = get_scalar_param
