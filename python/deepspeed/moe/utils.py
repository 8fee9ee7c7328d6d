"""Makes parameter groups for models with experts. A parameter whose `allreduce` is False belongs to an expert."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from deepspeed.moe.layer import MoE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    import torch


def has_moe_layers(m: torch.nn.Module) -> tuple[bool, int]:
    """Returns (whether the module has expert layers, number of experts of the first one)."""
    for part in m.modules():
        if isinstance(part, MoE):
            return True, cast(int, part.num_experts)
    return False, 0


def is_moe_param(param: torch.Tensor) -> bool:
    """Returns whether the parameter belongs to an expert."""
    return getattr(param, "allreduce", True) is False


def split_params_into_shared_and_expert_params(params: Iterable[torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Returns (shared parameters, parameters of experts)."""
    shared: list[torch.Tensor] = []
    experts: list[torch.Tensor] = []
    for param in params:
        (experts if is_moe_param(param) else shared).append(param)
    return shared, experts


def split_params_grads_into_shared_and_expert_params(group: Iterable[torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Returns the gradients of shared and of expert parameters, in fp32."""
    shared, experts = split_params_into_shared_and_expert_params(param for param in group if param.grad is not None)
    return _gradients(shared), _gradients(experts)


def _gradients(params: list[torch.Tensor]) -> list[torch.Tensor]:
    return [param.grad.float() for param in params if param.grad is not None]


def split_params_into_different_moe_groups_for_optimizer(
    param_groups: dict[str, Any] | Sequence[dict[str, Any]], max_group_size: int = 178956971
) -> list[dict[str, Any]]:
    """Returns the groups without expert parameters, followed by a group for each set of experts."""
    groups: Any = param_groups if isinstance(param_groups, (list, tuple)) else [param_groups]
    kept, added = [], []
    for group in groups:
        shared, experts = split_params_into_shared_and_expert_params(group["params"])
        kept.append(dict(group, params=shared))
        by_name: dict[str, list[torch.Tensor]] = {}
        param: Any  # the script has set its attribute
        for param in experts:
            by_name.setdefault(param.group_name, []).append(param)
        for name, params in by_name.items():
            for part in _cut(params, max_group_size):
                added.append(dict(group, params=part, name=name, moe=True))
    return kept + added


def _cut(params: list[torch.Tensor], max_group_size: int | None) -> list[list[torch.Tensor]]:
    """Returns lists of at most max_group_size elements each, or of one larger parameter."""
    if max_group_size is None:
        return [params]
    parts: list[list[torch.Tensor]] = [[]]
    size = 0
    for param in params:
        if parts[-1] and size + param.numel() > max_group_size:
            parts.append([])
            size = 0
        parts[-1].append(param)
        size += param.numel()
    return parts


def is_moe_param_group(param_group: Mapping[str, Any]) -> bool:
    """Returns whether the group holds expert parameters."""
    return bool(param_group.get("moe", False))


def configure_moe_param_groups(model_parameters: Iterable[Any]) -> list[Any]:
    """Returns parameters, or groups of them, with groups of their own for experts."""
    params = list(model_parameters)
    if params and isinstance(params[0], dict):
        return split_params_into_different_moe_groups_for_optimizer(params)
    if not any(map(is_moe_param, params)):
        return params
    return split_params_into_different_moe_groups_for_optimizer({"params": params, "name": "dense-params"})
