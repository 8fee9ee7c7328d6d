from deepspeed.runtime.base_optimizer import ZeROOptimizer


class BF16_Optimizer(ZeROOptimizer):
    """Is the optimizer of a model in bf16 at stage 0."""
