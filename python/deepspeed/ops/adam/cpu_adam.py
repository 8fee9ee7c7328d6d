from deepspeed.ops.core_optimizer import CoreOptimizer


class DeepSpeedCPUAdam(CoreOptimizer):
    """Is Adam, or AdamW, on the CPU's vectors."""

    optimizer_id = 0
    _is_for_cpu = True
    _type = "Adam"
    _keys = ("lr", "betas", "eps", "weight_decay", "bias_correction")

    def __init__(
        self,
        model_params,
        lr=1e-3,
        bias_correction=True,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0,
        amsgrad=False,
        adamw_mode=True,
        fp32_optimizer_states=True,
    ):
        defaults = dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, bias_correction=bias_correction, amsgrad=amsgrad)
        super().__init__(model_params, defaults)
        self.adam_w_mode = adamw_mode
        self.fp32_optimizer_states = fp32_optimizer_states

    def _params(self):
        params = {"adam_w_mode": self.adam_w_mode}
        if not self.fp32_optimizer_states:
            params["fp32_optimizer_states"] = False
        return params
