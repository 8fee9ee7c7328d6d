from deepspeed.runtime.base_optimizer import ZeROOptimizer


class DeepSpeedZeroOptimizer_Stage3(ZeROOptimizer):
    """Is the optimizer of ZeRO stage 3."""
