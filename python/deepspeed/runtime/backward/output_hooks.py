"""Hooks on the outputs of a forward, which run when backward reaches them."""

import functools

import torch
from torch.utils import _pytree as pytree


def maybe_loss_for_backward(value):
    """Returns whether the value may be a loss: one number with a graph behind it."""
    return isinstance(value, torch.Tensor) and value.numel() == 1 and value.grad_fn is not None


class OutputBackwardHookManager:
    """Calls preprocess_once_fn() before the first gradient of a backward, and preprocess_per_tensor_fn(tensor) for each."""

    def __init__(self, preprocess_once_fn, preprocess_per_tensor_fn=None):
        self.preprocess_once_fn = preprocess_once_fn
        self.preprocess_per_tensor_fn = preprocess_per_tensor_fn
        self.preprocess_done = False
        self.hook_handles = []

    def register_hooks_on_outputs(self, outputs):
        for output in pytree.tree_leaves(outputs):
            if isinstance(output, torch.Tensor) and output.requires_grad:
                self.hook_handles.append(output.register_hook(self._hook_of(output)))

    def _hook_of(self, output):
        # A hook that holds its own tensor keeps it forever: the collector does not see the way through the graph.
        per_tensor = self.preprocess_per_tensor_fn and functools.partial(self.preprocess_per_tensor_fn, output)

        def hook(grad):
            if not self.preprocess_done:
                self.preprocess_done = True
                self.preprocess_once_fn()
            changed = per_tensor() if per_tensor is not None else None
            return grad if changed is None else changed

        return hook

    def remove_hooks(self):
        for handle in self.hook_handles:
            handle.remove()
        self.hook_handles.clear()

    def reset(self):
        self.preprocess_done = False


def register_output_backward_hooks(outputs, preprocess_once_fn, preprocess_per_tensor_fn=None):
    """Puts the hooks on all tensors of the outputs; returns their manager."""
    manager = OutputBackwardHookManager(preprocess_once_fn, preprocess_per_tensor_fn)
    manager.register_hooks_on_outputs(outputs)
    return manager


def check_internal_apis_for_count_used_parameters():
    """Returns whether this torch has what count_used_parameters_in_backward() asks."""
    return hasattr(torch.autograd.graph, "_get_grad_fn_or_grad_acc") and hasattr(torch._C, "_will_engine_execute_node")


def count_used_parameters_in_backward(parameters):
    """Returns how many of the parameters the running backward will reach. Is for hooks: it asks autograd's running task."""
    if not check_internal_apis_for_count_used_parameters():
        raise RuntimeError("this torch cannot say what a running backward will reach")
    if torch._C._current_graph_task_id() == -1:
        raise RuntimeError("count_used_parameters_in_backward() is for hooks: no backward is running")
    with torch.enable_grad():
        nodes = {torch.autograd.graph._get_grad_fn_or_grad_acc(param) for param in parameters if param.requires_grad}
    return sum(1 for node in nodes if node is not None and torch._C._will_engine_execute_node(node))
