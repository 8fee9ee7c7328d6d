from deepspeed.ops.lamb.trust_ratios import TrustRatios
from deepspeed.runtime.fp16.onebit.one_bit_optimizer import OneBitOptimizer


class OnebitLamb(TrustRatios, OneBitOptimizer):
    """Is 1-bit Lamb (arXiv:2104.06069), at stages 0 and 1."""

    _type = "OneBitLamb"
    _keys = ("lr", "betas", "eps", "weight_decay", "max_coeff", "min_coeff")
    _own_keys = ("freeze_step", "coeff_beta", "factor_max", "factor_min", "factor_threshold")

    def __init__(
        self,
        params,
        deepspeed=None,
        lr=1e-3,
        freeze_step=100000,
        bias_correction=True,
        betas=(0.9, 0.999),
        eps=1e-8,
        eps_inside_sqrt=False,
        weight_decay=0.0,
        max_grad_norm=0.0,
        max_coeff=10.0,
        min_coeff=0.01,
        amsgrad=False,
        cuda_aware=False,
        comm_backend_name="nccl",
        coeff_beta=0.9,
        factor_max=4.0,
        factor_min=0.5,
        factor_threshold=0.1,
    ):
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
        own = dict(
            freeze_step=freeze_step,
            coeff_beta=coeff_beta,
            factor_max=factor_max,
            factor_min=factor_min,
            factor_threshold=factor_threshold,
        )
        super().__init__(params, defaults, amsgrad, eps_inside_sqrt, comm_backend_name, own)
