"""Computes norms over the ranks, clips, and searches for infinities."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from deepspeed.utils.bwc import bwc_tensor_model_parallel_rank

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import SupportsFloat

    from torch.distributed import ProcessGroup

    from deepspeed._types import Mpu


def is_model_parallel_parameter(p: object) -> bool:
    """Returns whether each tensor parallel rank has another part of the parameter."""
    return bool(getattr(p, "model_parallel", False) or getattr(p, "tensor_model_parallel", False))


def get_global_norm(norm_list: Iterable[SupportsFloat]) -> float:
    """Returns the L2 norm of a list of norms."""
    return math.sqrt(sum(float(norm) ** 2 for norm in norm_list))


def _counted(parameters: Iterable[torch.Tensor], mpu: Mpu | None) -> list[torch.Tensor]:
    """Leaves out what other ranks of the model's group already count."""
    first = bwc_tensor_model_parallel_rank(mpu) == 0
    return [param for param in parameters if mpu is None or first or is_model_parallel_parameter(param)]


def _norm(tensors: Sequence[torch.Tensor], norm_type: float, device: torch.device | str, group: ProcessGroup | None) -> torch.Tensor:
    is_max = norm_type == math.inf
    if not tensors:
        total = torch.zeros((), device=device)
    elif is_max:
        total = torch.stack([tensor.detach().float().abs().max() for tensor in tensors]).max()
    else:
        total = torch.stack([tensor.detach().float().norm(norm_type) ** norm_type for tensor in tensors]).sum()
    if group is not None:
        dist.all_reduce(total, op=dist.ReduceOp.MAX if is_max else dist.ReduceOp.SUM, group=group)
    return total if is_max else total ** (1.0 / norm_type)


def _mean_over_experts(norm: torch.Tensor) -> torch.Tensor:
    """Averages the norm over ranks that hold different experts."""
    from deepspeed.utils import groups

    group = groups._get_data_parallel_group()
    norm = norm / dist.get_world_size(group=group)
    dist.all_reduce(norm, group=group)
    return norm


def clip_grad_norm_(
    parameters: torch.Tensor | Iterable[torch.Tensor], max_norm: float, norm_type: float = 2, mpu: Mpu | None = None
) -> torch.Tensor:
    """Scales gradients in place to a norm of at most max_norm over the model's ranks.

    norm_type: the p of the norm, math.inf for the largest absolute value. mpu: None if each rank has the whole model. Returns the norm
    before, a tensor.
    """
    params = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
    params = [param for param in params if param.grad is not None]
    grads = [param.grad for param in _counted(params, mpu) if param.grad is not None]
    all_grads = [param.grad for param in params if param.grad is not None]
    device = all_grads[0].device if all_grads else "cpu"
    group = mpu.get_model_parallel_group() if mpu is not None else None
    norm = _norm(grads, float(norm_type), device, group)
    if any(getattr(param, "allreduce", True) is False for param in params) and dist.is_initialized():
        norm = _mean_over_experts(norm)
    factor = float(max_norm) / (norm + 1e-6)
    if factor < 1:
        for grad in all_grads:
            grad.detach().mul_(factor.to(grad.device))
    return norm


def get_grad_norm(parameters: torch.Tensor | Iterable[torch.Tensor], norm_type: float = 2, mpu: Mpu | None = None) -> float:
    """Returns the norm of gradients over the model's ranks; -1 for infinity or nan."""
    params = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
    return _finite(_of(_counted([param for param in params if param.grad is not None], mpu), "grad", norm_type, mpu))


def get_weight_norm(parameters: torch.Tensor | Iterable[torch.Tensor], norm_type: float = 2, mpu: Mpu | None = None) -> float:
    """Returns the norm of weights over the model's ranks; -1 for infinity or nan."""
    params = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
    return _finite(_of(_counted(params, mpu), "data", norm_type, mpu))


def _of(params: Sequence[torch.Tensor], attribute: str, norm_type: float, mpu: Mpu | None) -> torch.Tensor:
    tensors = [getattr(param, attribute) for param in params]
    group = mpu.get_model_parallel_group() if mpu is not None else None
    return _norm(tensors, float(norm_type), tensors[0].device if tensors else "cpu", group)


def _finite(norm: torch.Tensor) -> float:
    value = norm.item()
    return value if math.isfinite(value) else -1


def get_global_norm_of_tensors(
    input_tensors: Iterable[torch.Tensor],
    norm_type: float = 2,
    mpu: Mpu | None = None,
    use_graph: bool = False,
    moe_ep_group: ProcessGroup | None = None,
) -> torch.Tensor:
    """Returns the norm of tensors over the model's ranks; -1 for infinity or nan."""
    tensors = list(input_tensors)
    group = mpu.get_model_parallel_group() if mpu is not None else moe_ep_group
    norm = _norm(tensors, float(norm_type), tensors[0].device if tensors else "cpu", group)
    return torch.where(torch.isfinite(norm), norm, torch.full_like(norm, -1.0))


def clip_tensors_by_global_norm(
    input_tensors: Iterable[torch.Tensor],
    max_norm: float = 1.0,
    global_norm: SupportsFloat | None = None,
    mpu: Mpu | None = None,
    eps: float = 1e-6,
    use_graph: bool = False,
) -> SupportsFloat:
    """Scales tensors to a norm of at most max_norm. Returns the norm before."""
    tensors = list(input_tensors)
    if global_norm is None:
        global_norm = get_global_norm_of_tensors(tensors, mpu=mpu)
    factor = max_norm / (float(global_norm) + eps)
    if factor < 1:
        for tensor in tensors:
            tensor.detach().mul_(factor)
    return global_norm


def has_inf_or_nan(x: torch.Tensor) -> torch.Tensor:
    """Returns a tensor that tells whether any value is infinite or nan."""
    return ~torch.isfinite(x.float()).all()


class CheckOverflow:
    """Finds out whether any rank has a gradient that is infinite or nan."""

    def __init__(
        self,
        param_groups: Iterable[Iterable[torch.Tensor]] | None = None,
        mpu: Mpu | None = None,
        zero_reduce_scatter: bool = False,
        deepspeed: object = None,
    ) -> None:
        self.mpu = mpu
        self.params = [param for group in param_groups or [] for param in group]

    def check_using_norm(self, norm_group: Iterable[float], reduce_overflow: bool = True) -> bool:
        """Checks norms as get_weight_norm() returns them: -1 stands for infinite."""
        return self._anywhere(any(norm == -1 for norm in norm_group), reduce_overflow)

    def check(self, param_groups: Iterable[Iterable[torch.Tensor]] | None = None) -> bool:
        params = self.params if param_groups is None else [param for group in param_groups for param in group]
        return self.has_overflow(params)

    def has_overflow_serial(self, params: Iterable[torch.Tensor]) -> bool:
        return any(param.grad is not None and bool(has_inf_or_nan(param.grad)) for param in params)

    def has_overflow(self, params: Iterable[torch.Tensor], has_moe_params: object = None) -> bool:
        return self._anywhere(self.has_overflow_serial(params), True)

    def _anywhere(self, here: bool, reduce_overflow: bool) -> bool:
        flag = torch.tensor([float(here)])
        if dist.is_initialized() and (reduce_overflow or self._has_experts()):
            from deepspeed.accelerator import get_accelerator

            flag = flag.to(get_accelerator().current_device_name())
            dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        return bool(flag.item())

    def _has_experts(self) -> bool:
        return any(getattr(param, "allreduce", True) is False for param in self.params)
