from deepspeed.runtime.base_optimizer import ZeROOptimizer


class DeepSpeedZeroOptimizer(ZeROOptimizer):
    """Is the optimizer of ZeRO stages 1 and 2."""
