"""Makes parameter groups for mixtures of experts. The layer itself is not supported."""

from typing import TYPE_CHECKING

from deepspeed._lazy import lazy

if TYPE_CHECKING:
    from deepspeed.moe import layer as layer, utils as utils
else:
    __getattr__ = lazy(__name__, submodules=("layer", "utils"))
