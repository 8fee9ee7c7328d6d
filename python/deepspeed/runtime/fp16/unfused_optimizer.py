from deepspeed.runtime.base_optimizer import DeepSpeedOptimizer


class FP16_UnfusedOptimizer(DeepSpeedOptimizer):
    """Is the name of DeepSpeed for optimizers that need whole parameters; here they are FP16_Optimizer too."""
