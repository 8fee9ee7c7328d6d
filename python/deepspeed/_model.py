"""Answers what the core asks about a torch.nn.Module."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_EMBEDDINGS = (torch.nn.Embedding, torch.nn.EmbeddingBag)


def class_name(cls: type) -> str:
    """Returns the class name as configs spell it: torch.nn.Linear, my_project.model.Block."""
    if cls.__module__.startswith("torch.nn.modules."):
        return f"torch.nn.{cls.__qualname__}"
    return f"{cls.__module__}.{cls.__qualname__}"


def describe(module: torch.nn.Module) -> dict[str, Any]:
    """Returns the dict that _core.make_engine() takes as its model."""
    first_names: dict[int, str] = {}
    parameters, shared = [], []
    for name, param in module.named_parameters(remove_duplicate=False):
        if id(param) in first_names:
            shared.append((name, first_names[id(param)]))
        else:
            first_names[id(param)] = name
            parameters.append((name, param))
    passing = {name for name, _, _ in passing_buffers(module)}
    parts, modules = [], []
    for name, part in module.named_modules():
        num_below = sum(1 for _ in part.modules()) - 1
        is_leaf = bool(getattr(part, "_z3_leaf", False))
        parts.append((name, class_name(type(part)), list(part.parameters()), num_below, is_leaf))
        own = list(part.parameters(recurse=False))
        if own:
            modules.append((class_name(type(part)), isinstance(part, _EMBEDDINGS), own))
    return dict(
        parameters=parameters,
        buffers=[(name, buffer) for name, buffer in module.named_buffers() if name not in passing],
        shared=shared,
        modules=modules,
        parts=parts,
        set_training=module.train,
        owner=module,
    )


def passing_buffers(module: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module, str]]:
    """Yields (name, owning module, name there) for each buffer that is in no state dict."""
    for path, part in module.named_modules():
        for name in part._non_persistent_buffers_set:
            if part._buffers.get(name) is not None:
                yield (f"{path}.{name}" if path else name), part, name


def move_passing_buffers(module: torch.nn.Module, device: torch.device) -> None:
    """Moves these buffers to the device; the core moves those that it saves."""
    for _, part, name in passing_buffers(module):
        buffer = part._buffers[name]
        assert buffer is not None
        part._buffers[name] = buffer.to(device)
