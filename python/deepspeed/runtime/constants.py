"""Defines the config's keys and their defaults: X is a key's name, X_DEFAULT its default.

Both come from the core, so they always match the engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

ROUTE_TRAIN = "train"
ROUTE_EVAL = "eval"
ROUTE_PREDICT = "predict"
ROUTE_ENCODE = "encode"


def __getattr__(name: str) -> Any:
    from deepspeed import _core
    from deepspeed.runtime.config import default_of

    key = name.removesuffix("_DEFAULT").lower()
    if not name.isupper() or key not in _core.config_keys():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return default_of(key) if name.endswith("_DEFAULT") else key
