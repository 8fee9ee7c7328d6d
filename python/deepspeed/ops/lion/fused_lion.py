from deepspeed.ops.core_optimizer import CoreOptimizer


class FusedLion(CoreOptimizer):
    """Is Lion in one pass over all parameters (arXiv:2302.06675)."""

    _type = "Lion"
    _keys = ("lr", "betas", "weight_decay")

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), weight_decay=0.0, set_grad_none=True):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))
        self.set_grad_none = set_grad_none
