from deepspeed.runtime.base_optimizer import DeepSpeedOptimizer


class FP16_Optimizer(DeepSpeedOptimizer):
    """Is the optimizer of a model in fp16 at stage 0."""
