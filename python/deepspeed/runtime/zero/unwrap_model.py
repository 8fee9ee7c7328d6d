"""A model whose parameters are whole for a while, as generation wants them."""
import contextlib

from deepspeed.runtime.zero.partition_parameters import GatheredParameters


@contextlib.contextmanager
def unwrap_model_for_generation(model):
    """Gathers all parameters of an engine once, on every rank, and gives the engine."""
    with GatheredParameters(list(model.parameters())):
        yield model
