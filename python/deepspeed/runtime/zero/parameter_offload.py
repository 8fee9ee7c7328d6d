"""The dict of a module's parameters by which DeepSpeed sees their use; here operators gather what they use."""
from collections import OrderedDict

from deepspeed._errors import not_supported_class


class ZeROOrderedDict(OrderedDict):
    """Is a module's dict of parameters that knows its module. Engines do without it, and leave modules' dicts alone."""

    def __init__(self, parent_module, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._parent_module = parent_module

    def __reduce__(self):
        cls, _, *rest = super().__reduce__()
        return (cls, (self._parent_module,), *rest)


def ensure_zero_ordered_dict(module):
    """Makes the module's dict of parameters a ZeROOrderedDict; the former one stays in module._original_parameters."""
    held = getattr(module, "_parameters", None)
    if not isinstance(held, dict) or isinstance(held, ZeROOrderedDict):
        return
    if not hasattr(module, "_original_parameters"):
        module._original_parameters = held
    module._parameters = ZeROOrderedDict(module, held)


DeepSpeedZeRoOffload = not_supported_class(
    "deepspeed.runtime.zero.parameter_offload.DeepSpeedZeRoOffload",
    "the engine gathers parameters by itself: call initialize(); without an optimizer it serves inference",
)
