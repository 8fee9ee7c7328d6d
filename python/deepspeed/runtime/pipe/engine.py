from deepspeed._errors import NotSupportedError
from deepspeed.runtime.engine import DeepSpeedEngine


class PipelineEngine(DeepSpeedEngine):
    """Is the class of engines that train a PipelineModule, which do not exist yet."""

    def __init__(self, *args, **kwargs):
        raise NotSupportedError("pipeline parallelism is not supported yet: give initialize() a torch.nn.Module")
