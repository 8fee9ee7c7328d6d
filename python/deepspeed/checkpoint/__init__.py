"""Describes checkpoints: names and keys of their files, and the contents of a folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepspeed._lazy import lazy

if TYPE_CHECKING:
    from typing import Any

_OF_MODULES = {
    "reshape_meg_2d": ("reshape_meg_2d_parallel",),
    "deepspeed_checkpoint": ("DeepSpeedCheckpoint",),
    "utils": ("get_layer_ckpt_name_for_rank", "get_model_ckpt_name_for_rank", "get_zero_ckpt_name_for_rank"),
    "reshape_utils": ("merge_state",),
    "reshape_3d_utils": ("model_3d_desc", "get_model_3d_descriptor"),
    "zero_checkpoint": ("ZeROCheckpoint",),
    "universal_checkpoint": ("enable_universal_checkpoint", "SubparamShape"),
}

_find = lazy(
    __name__,
    submodules=("constants", "ds_to_universal", *_OF_MODULES),
    names={name: f"{__name__}.{module}" for module, names in _OF_MODULES.items() for name in names},
)


def __getattr__(name: str) -> Any:
    if name.isupper():  # a key in `constants`
        from deepspeed.checkpoint import constants

        return getattr(constants, name)
    return _find(name)
