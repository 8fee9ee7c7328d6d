from deepspeed.ops.core_optimizer import CoreOptimizer


class DeepSpeedCPUAdagrad(CoreOptimizer):
    """Is Adagrad on the CPU's vectors."""

    optimizer_id = 0
    _is_for_cpu = True
    _takes_sparse = True
    _type = "Adagrad"
    _keys = ("lr", "eps", "weight_decay")

    def __init__(self, model_params, lr=1e-2, eps=1e-10, weight_decay=0, amsgrad=False, fp32_optimizer_states=True):
        super().__init__(model_params, dict(lr=lr, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad))
