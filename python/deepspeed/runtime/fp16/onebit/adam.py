from deepspeed.runtime.fp16.onebit.one_bit_optimizer import OneBitOptimizer


class OnebitAdam(OneBitOptimizer):
    """Is 1-bit Adam (arXiv:2102.02888), at stages 0 and 1."""

    _type = "OneBitAdam"
    _own_keys = ("freeze_step",)

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
        amsgrad=False,
        cuda_aware=False,
        comm_backend_name="nccl",
    ):
        defaults = dict(
            lr=lr,
            bias_correction=bias_correction,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            max_grad_norm=max_grad_norm,
        )
        own = dict(freeze_step=freeze_step)
        super().__init__(params, defaults, amsgrad, eps_inside_sqrt, comm_backend_name, own)
