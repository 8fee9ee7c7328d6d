"""Helpers of configs. DeepSpeedConfigModel needs pydantic, which is imported when the class is asked for."""

import json

from deepspeed._config import dict_raise_error_on_duplicate_keys
from deepspeed._lazy import lazy

__getattr__ = lazy(
    __name__, names={"DeepSpeedConfigModel": "deepspeed.runtime.config_model", "get_config_default": "deepspeed.runtime.config_model"}
)


class pp_int(int):
    """Is a whole number that is shown with commas, or by a text of its own."""

    def __new__(cls, val, custom_print_str=None):
        made = super().__new__(cls, val)
        made.custom_print_str = custom_print_str
        return made

    def __repr__(self):
        return self.custom_print_str or f"{int(self):,}"


class DeepSpeedConfigObject:
    """Is shown as JSON of its attributes."""

    def repr(self):
        return self.__dict__

    def __repr__(self):
        return json.dumps(self.__dict__, sort_keys=True, indent=4, default=str)


def get_scalar_param(param_dict, param_name, param_default_value):
    """Returns a key's value, or the default."""
    return param_dict.get(param_name, param_default_value)


get_list_param = get_dict_param = get_scalar_param
