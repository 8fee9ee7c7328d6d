from deepspeed.runtime.fp16.onebit.one_bit_optimizer import OneBitOptimizer


class ZeroOneAdam(OneBitOptimizer):
    """Is 0/1 Adam (arXiv:2202.06009), at stage 0."""

    _type = "ZeroOneAdam"
    _own_keys = ("var_freeze_step", "var_update_scaler", "local_step_scaler", "local_step_clipper")

    def __init__(
        self,
        params,
        deepspeed=None,
        lr=1e-3,
        bias_correction=True,
        betas=(0.9, 0.999),
        eps=1e-8,
        eps_inside_sqrt=False,
        weight_decay=0.0,
        max_grad_norm=0.0,
        var_freeze_step=100000,
        var_update_scaler=16,
        local_step_scaler=32678,
        local_step_clipper=16,
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
        own = dict(
            var_freeze_step=var_freeze_step,
            var_update_scaler=var_update_scaler,
            local_step_scaler=local_step_scaler,
            local_step_clipper=local_step_clipper,
        )
        super().__init__(params, defaults, amsgrad, eps_inside_sqrt, comm_backend_name, own)
