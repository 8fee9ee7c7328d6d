from deepspeed.ops.core_optimizer import CoreOptimizer
from deepspeed.ops.lamb.trust_ratios import TrustRatios


class FusedLamb(TrustRatios, CoreOptimizer):
    """Is LAMB (arXiv:1904.00962); it needs whole parameters, which stages 0 to 3 give it."""

    _type = "Lamb"
    _keys = ("lr", "betas", "eps", "weight_decay", "bias_correction", "max_coeff", "min_coeff")

    def __init__(
        self,
        params,
        lr=1e-3,
        bias_correction=True,
        betas=(0.9, 0.999),
        eps=1e-8,
        eps_inside_sqrt=False,
        weight_decay=0.0,
        max_grad_norm=0.0,
        max_coeff=10.0,
        min_coeff=0.01,
        amsgrad=False,
    ):
        if amsgrad:
            raise RuntimeError("FusedLamb does not support the AMSGrad variant.")
        defaults = dict(
            lr=lr,
            bias_correction=bias_correction,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            max_grad_norm=max_grad_norm,
            max_coeff=max_coeff,
            min_coeff=min_coeff,
        )
        super().__init__(params, defaults)
