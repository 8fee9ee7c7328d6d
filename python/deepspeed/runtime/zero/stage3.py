"""The optimizer of ZeRO stage 3."""
import contextlib

from deepspeed.runtime.base_optimizer import ZeROOptimizer
from deepspeed.runtime.zero.partition_parameters import GatheredParameters


class DeepSpeedZeroOptimizer_Stage3(ZeROOptimizer):
    """Is the optimizer of ZeRO stage 3."""


@contextlib.contextmanager
def unwrap_model_for_generation(model):
    """Holds all parameters whole on every rank for a scope, so that each call of generate() need not gather them. Collective."""
    with GatheredParameters(model.parameters()):
        yield model
