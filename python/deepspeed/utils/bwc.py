"""What an mpu object says, under the names of its older and newer versions."""


def _first(mpu, names, default):
    if mpu is None:
        return default
    for name in names:
        if hasattr(mpu, name):
            return getattr(mpu, name)()
    return default


_TENSOR = ("get_tensor_model_parallel_{}", "get_slice_parallel_{}", "get_model_parallel_{}")
_PIPE = ("get_pipeline_model_parallel_{}", "get_pipe_parallel_{}")


def bwc_tensor_model_parallel_rank(mpu=None):
    """Returns the rank in the group of tensor parallelism; 0 without an mpu."""
    return _first(mpu, [name.format("rank") for name in _TENSOR], 0)


def bwc_tensor_model_parallel_world_size(mpu=None):
    """Returns the size of the group of tensor parallelism; 1 without an mpu."""
    return _first(mpu, [name.format("world_size") for name in _TENSOR], 1)


def bwc_tensor_model_parallel_group(mpu=None):
    """Returns the group of tensor parallelism; None without an mpu."""
    return _first(mpu, [name.format("group") for name in _TENSOR], None)


def bwc_pipeline_parallel_world_size(mpu=None):
    """Returns the number of pipeline stages; 1 without an mpu."""
    return _first(mpu, [name.format("world_size") for name in _PIPE], 1)


def bwc_pipeline_parallel_group(mpu=None):
    """Returns the group of the pipeline; None without an mpu."""
    return _first(mpu, [name.format("group") for name in _PIPE], None)
