"""Runs hooks on a forward's outputs when backward reaches them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import torch
from torch.utils import _pytree as pytree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch.utils.hooks import RemovableHandle


def maybe_loss_for_backward(value: object) -> bool:
    """Returns whether the value may be a loss: a single number with a graph."""
    return isinstance(value, torch.Tensor) and value.numel() == 1 and value.grad_fn is not None


class OutputBackwardHookManager:
    """Calls preprocess_once_fn() before a backward's first gradient, and preprocess_per_tensor_fn(tensor) for each."""

    def __init__(
        self,
        preprocess_once_fn: Callable[[], object],
        preprocess_per_tensor_fn: Callable[[torch.Tensor], torch.Tensor | None] | None = None,
    ) -> None:
        self.preprocess_once_fn = preprocess_once_fn
        self.preprocess_per_tensor_fn = preprocess_per_tensor_fn
        self.preprocess_done = False
        self.hook_handles: list[RemovableHandle] = []

    def register_hooks_on_outputs(self, outputs: object) -> None:
        for output in pytree.tree_leaves(outputs):
            if isinstance(output, torch.Tensor) and output.requires_grad:
                self.hook_handles.append(output.register_hook(self._hook_of(output)))

    def _hook_of(self, output: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
        # A hook that holds its own tensor is never freed: the garbage collector does not see the path through the graph.
        per_tensor = self.preprocess_per_tensor_fn and functools.partial(self.preprocess_per_tensor_fn, output)

        def hook(grad: torch.Tensor) -> torch.Tensor:
            if not self.preprocess_done:
                self.preprocess_done = True
                self.preprocess_once_fn()
            changed = per_tensor() if per_tensor is not None else None
            return grad if changed is None else changed

        return hook

    def remove_hooks(self) -> None:
        for handle in self.hook_handles:
            handle.remove()
        self.hook_handles.clear()

    def reset(self) -> None:
        self.preprocess_done = False


def register_output_backward_hooks(
    outputs: object,
    preprocess_once_fn: Callable[[], object],
    preprocess_per_tensor_fn: Callable[[torch.Tensor], torch.Tensor | None] | None = None,
) -> OutputBackwardHookManager:
    """Registers the hooks on all tensors of the outputs, and returns their manager."""
    manager = OutputBackwardHookManager(preprocess_once_fn, preprocess_per_tensor_fn)
    manager.register_hooks_on_outputs(outputs)
    return manager


def check_internal_apis_for_count_used_parameters() -> bool:
    """Returns whether this torch has the functions for count_used_parameters_in_backward()."""
    return hasattr(torch.autograd.graph, "_get_grad_fn_or_grad_acc") and hasattr(torch._C, "_will_engine_execute_node")


def count_used_parameters_in_backward(parameters: Iterable[torch.Tensor]) -> int:
    """Returns how many of the parameters the running backward will reach. Only hooks can call it, since it asks autograd's running task."""
    if not check_internal_apis_for_count_used_parameters():
        raise RuntimeError("this torch cannot say what a running backward will reach")
    if torch._C._current_graph_task_id() == -1:
        raise RuntimeError("count_used_parameters_in_backward() is for hooks: no backward is running")
    with torch.enable_grad():
        nodes = {torch.autograd.graph._get_grad_fn_or_grad_acc(param) for param in parameters if param.requires_grad}
    return sum(1 for node in nodes if node is not None and torch._C._will_engine_execute_node(node))
