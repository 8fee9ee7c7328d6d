"""Parameter groups of models with experts: a parameter whose `allreduce` is False belongs to an expert."""

from deepspeed.moe.layer import MoE


def has_moe_layers(m):
    """Returns (whether the module has a layer of experts, the number of experts of the first one)."""
    for part in m.modules():
        if isinstance(part, MoE):
            return True, part.num_experts
    return False, 0


def is_moe_param(param):
    """Returns whether the parameter belongs to an expert."""
    return getattr(param, "allreduce", True) is False


def split_params_into_shared_and_expert_params(params):
    """Returns (shared parameters, parameters of experts)."""
    shared, experts = [], []
    for param in params:
        (experts if is_moe_param(param) else shared).append(param)
    return shared, experts


def split_params_grads_into_shared_and_expert_params(group):
    """Returns the gradients likewise, in fp32."""
    shared, experts = split_params_into_shared_and_expert_params(param for param in group if param.grad is not None)
    return [param.grad.float() for param in shared], [param.grad.float() for param in experts]


def split_params_into_different_moe_groups_for_optimizer(param_groups, max_group_size=178956971):
    """Returns the groups without parameters of experts, and behind them a group of each expert group's parameters."""
    groups = param_groups if isinstance(param_groups, (list, tuple)) else [param_groups]
    kept, added = [], []
    for group in groups:
        shared, experts = split_params_into_shared_and_expert_params(group["params"])
        kept.append(dict(group, params=shared))
        by_name = {}
        for param in experts:
            by_name.setdefault(param.group_name, []).append(param)
        for name, params in by_name.items():
            for part in _cut(params, max_group_size):
                added.append(dict(group, params=part, name=name, moe=True))
    return kept + added


def _cut(params, max_group_size):
    """Returns lists of at most so many elements each, or of one larger parameter."""
    if max_group_size is None:
        return [params]
    parts, size = [[]], 0
    for param in params:
        if parts[-1] and size + param.numel() > max_group_size:
            parts.append([])
            size = 0
        parts[-1].append(param)
        size += param.numel()
    return parts


def is_moe_param_group(param_group):
    """Returns whether the group is one of experts."""
    return param_group.get("moe", False)


def configure_moe_param_groups(model_parameters):
    """Returns parameters, or groups of them, in which experts have groups of their own."""
    params = list(model_parameters)
    if params and isinstance(params[0], dict):
        return split_params_into_different_moe_groups_for_optimizer(params)
    if not any(map(is_moe_param, params)):
        return params
    return split_params_into_different_moe_groups_for_optimizer({"params": params, "name": "dense-params"})
