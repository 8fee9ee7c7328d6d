"""The closure that a script may give to an optimizer's step()."""

import torch


def loss_of(closure):
    """Calls it, with gradients, and returns its loss; None where there is no closure."""
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()
