"""Chooses the optimizer that the core makes: from the config, or from the client's own."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from deepspeed._config import offload_device
from deepspeed._elementwise import require_elementwise
from deepspeed._errors import ConfigError, ZeRORuntimeException
from deepspeed._slices import SliceStepper, take_states_of_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

# Optimizers of torch that the core can replace: the config's type and params, the options to copy, and those that must be off. The
# config's Adam decouples weight decay unless a parameter says otherwise.
_OF_TORCH = {
    torch.optim.Adam: (
        ("Adam", {"torch_adam": True, "adam_w_mode": False}),
        ("lr", "betas", "eps", "weight_decay"),
        ("maximize", "differentiable", "decoupled_weight_decay"),
    ),
    torch.optim.AdamW: (
        ("AdamW", {"torch_adam": True}),
        ("lr", "betas", "eps", "weight_decay"),
        ("maximize", "differentiable"),
    ),
    torch.optim.SGD: (("SGD", {}), ("lr", "momentum", "dampening", "weight_decay", "nesterov"), ("maximize", "differentiable")),
}


# Names of torch.optim classes for which the core makes an optimizer of its own.
_MADE_BY_CORE = ("Adagrad", "Adam", "AdamW", "LBFGS", "Muon", "RMSprop", "SGD")
_OF_MUP = {"muadam": "MuAdam", "muadamw": "MuAdamW", "musgd": "MuSGD"}


@dataclasses.dataclass
class OptimizerPlan:
    """Describes what the engine builds its optimizer from."""

    config: dict[str, Any]  # its section `optimizer` is what the core should read
    groups: list[Any]  # for the core: [(parameters, options)]
    dicts: list[dict[str, Any]]  # the groups that clients see
    client: torch.optim.Optimizer | None = None
    slice_optimizer: dict[str, Any] | None = None  # set for an optimizer whose step runs in Python
    states: dict[torch.Tensor, dict[str, Any]] = dataclasses.field(
        default_factory=dict
    )  # from the client's earlier steps: {parameter: {name: tensor or number}}


def plan_optimizer(
    config: dict[str, Any],
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | Callable[[Any], torch.optim.Optimizer] | None,
    model_parameters: Iterable[Any] | None,
) -> OptimizerPlan:
    """Makes the plan from the arguments of initialize()."""
    if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
        if not callable(optimizer):
            raise TypeError(f"optimizer: got {type(optimizer).__name__}, expected a torch.optim.Optimizer or a callable")
        optimizer = optimizer(list(model_parameters) if model_parameters is not None else _trainable(model))
        model_parameters = None
    if optimizer is not None:
        _check_place(config, optimizer)
        return _of_client(config, optimizer)
    if not isinstance(config.get("optimizer"), Mapping):  # the core reports a wrong type
        return OptimizerPlan(config, [], [])
    if str(config["optimizer"].get("type")).lower() == "muon":
        _check_muon(config)
    named = _named_class(config["optimizer"])
    if named is not None:
        return _of_client(config, named(list(_trainable(model) if model_parameters is None else model_parameters)))
    if model_parameters is None:
        return OptimizerPlan(config, [], [{"params": _trainable(model)}])
    given = list(model_parameters)
    if not given or not isinstance(given[0], Mapping):
        given = [{"params": given}]
    dicts = _with_parameters([_with_list(group) for group in given])
    if not dicts:
        return OptimizerPlan(config, [], [{"params": _trainable(model)}])
    return OptimizerPlan(config, [(group["params"], _options(group)) for group in dicts], dicts)


def _named_class(section: Mapping[str, Any]) -> Callable[[Iterable[Any]], torch.optim.Optimizer] | None:
    """Returns a function that makes an optimizer which only Python has; None if the core has the type.

    These are optimizers of torch, and those of muP: torch's too, with one learning rate for each width. The function takes the
    parameters.
    """
    name = str(section.get("type"))
    kind = getattr(torch.optim, name, None)
    if name.lower() in _OF_MUP:
        name = _OF_MUP[name.lower()]
        try:
            import mup
        except ImportError:
            raise ConfigError(f"optimizer.type: {name} needs the package mup: install it (pip install mup)") from None
        kind = getattr(mup, name)
    elif name in _MADE_BY_CORE or not (isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)):
        return None

    def make(parameters: Iterable[Any]) -> torch.optim.Optimizer:
        try:
            return kind(parameters, **(section.get("params") or {}))
        except (TypeError, ValueError) as error:
            raise ConfigError(f"optimizer.params: {name} does not take them: {error}") from error

    return make


def _of_client(config: dict[str, Any], client: torch.optim.Optimizer) -> OptimizerPlan:
    config = {key: value for key, value in config.items() if key != "optimizer"}
    client.param_groups[:] = _with_parameters(client.param_groups)
    dicts = client.param_groups
    _check_states(config, client)
    entry = _of_core(client)
    if entry is None:
        groups = [(group["params"], _held_options(group)) for group in dicts]
        states = take_states_of_steps(client)
        return OptimizerPlan(config, groups, dicts, client, _slice_optimizer(config, client), states)
    name, params, keys = entry
    config["optimizer"] = {"type": name, "params": params}
    groups = [(group["params"], {key: _number(group[key]) for key in keys if key in group}) for group in dicts]
    states = {param: client.state[param] for group in dicts for param in group["params"] if param in client.state}
    return OptimizerPlan(config, groups, dicts, client, states=states)


def _check_states(config: Mapping[str, Any], client: torch.optim.Optimizer) -> None:
    bf16 = config.get("bf16") or config.get("bfloat16")
    in_bf16 = isinstance(bf16, Mapping) and bf16.get("bf16_optimizer_states")
    if in_bf16 and getattr(client, "fp32_optimizer_states", False):
        raise ConfigError(
            f"bf16.bf16_optimizer_states: got true beside a {type(client).__name__} that keeps its states in fp32: make it with "
            "fp32_optimizer_states=False"
        )


def _check_place(config: Mapping[str, Any], client: torch.optim.Optimizer) -> None:
    device = offload_device(config)
    is_forced = config.get("zero_force_ds_cpu_optimizer", True)
    if device == "none" or not is_forced or hasattr(client, "_core_optimizer"):
        return
    raise ZeRORuntimeException(
        f"zero_optimization.offload_optimizer.device: got {device!r} with an optimizer of class {type(client).__name__} passed to "
        "initialize(), expected DeepSpeedCPUAdam, DeepSpeedCPULion or DeepSpeedCPUAdagrad; "
        '"zero_force_ds_cpu_optimizer": false takes any'
    )


def _check_muon(config: Mapping[str, Any]) -> None:
    """Warns that Muon's momenta are not offloaded if the config sets reduce_scatter, as DeepSpeed does."""
    zero = config.get("zero_optimization") or {}
    if offload_device(config) != "none" and zero.get("reduce_scatter") is True and zero.get("stage") in (1, 2):
        raise ConfigError(
            "zero_optimization.reduce_scatter: got true. Muon with reduce scatter does not support optimizer offload; leave "
            "the key out or set it to false"
        )


def _of_core(client: torch.optim.Optimizer) -> tuple[str, dict[str, Any], Sequence[str]] | None:
    """Returns (type, params, keys of the groups) if the core has the optimizer's arithmetic."""
    own = getattr(client, "_core_optimizer", None)  # a class of deepspeed.ops
    if own is not None:
        described: tuple[str, dict[str, Any], Sequence[str]] = own()
        return described
    if type(client) not in _OF_TORCH:
        return None
    (name, params), keys, off = _OF_TORCH[type(client)]
    if any(group.get(key) for group in client.param_groups for key in off):
        return None
    amsgrad = {bool(group.get("amsgrad")) for group in client.param_groups}
    if len(amsgrad) > 1:  # the core has one value for all groups
        return None
    return name, {**params, "amsgrad": True} if amsgrad == {True} else params, keys


def _slice_optimizer(config: Mapping[str, Any], client: torch.optim.Optimizer) -> dict[str, Any]:
    dicts = client.param_groups
    trainable = [index for index, group in enumerate(dicts) if any(param.requires_grad for param in group["params"])]
    stage = (config.get("zero_optimization") or {}).get("stage", 0)
    stepper = SliceStepper(client, lambda group: dicts[trainable[group]])
    if stage > 0:
        require_elementwise(client, stage, stepper.first_states)
    return dict(stepper=stepper, name=type(client).__name__, is_elementwise=stage > 0)


def _with_list(group: Any) -> Any:
    """Returns the client's dict with its parameters in a list. They may come as an iterator, which can be read only once."""
    if not isinstance(group["params"], list):
        params = [group["params"]] if isinstance(group["params"], torch.Tensor) else list(group["params"])
        if isinstance(group, dict):
            group["params"] = params
        else:
            group = dict(group, params=params)
    return group


def _with_parameters(dicts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leaves out groups without parameters: no step or schedule would reach their options."""
    return [group for group in dicts if group["params"]]


def _options(group: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options that the core takes: numbers, flags and text. Other entries stay in the dict."""
    return {key: _number(value) for key, value in group.items() if key not in ("params", "name", "param_names", "moe")}


def _held_options(group: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options that the core can hold for an optimizer whose step runs in Python.

    They are saved in checkpoints. Such an optimizer need not have a learning rate.
    """
    return {"lr": 0.0, **{key: value for key, value in _options(group).items() if _is_option(value)}}


def _is_option(value: object) -> bool:
    """Returns whether the core can hold the value: a number, a flag, text, or two numbers."""
    if isinstance(value, (list, tuple)):
        return len(value) == 2 and all(isinstance(item, (int, float)) for item in value)
    return isinstance(value, (bool, int, float, str))


def _number(value: object) -> Any:
    return value.item() if isinstance(value, torch.Tensor) else value


def _trainable(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    return [param for param in model.parameters() if param.requires_grad]
