from deepspeed.ops.core_optimizer import CoreOptimizer


class FusedAdam(CoreOptimizer):
    """Is Adam, or AdamW, in one pass over all parameters."""

    _type = "Adam"
    _keys = ("lr", "betas", "eps", "weight_decay", "bias_correction")

    def __init__(
        self,
        params,
        lr=1e-3,
        bias_correction=True,
        betas=(0.9, 0.999),
        eps=1e-8,
        adam_w_mode=True,
        weight_decay=0.0,
        amsgrad=False,
        set_grad_none=True,
    ):
        if amsgrad:
            raise RuntimeError("FusedAdam does not support the AMSGrad variant.")
        super().__init__(params, dict(lr=lr, bias_correction=bias_correction, betas=betas, eps=eps, weight_decay=weight_decay))
        self.adam_w_mode = 1 if adam_w_mode else 0
        self.set_grad_none = set_grad_none

    def _params(self):
        return {"adam_w_mode": bool(self.adam_w_mode)}
