"""Names of the linear layer that DeepSpeed puts in place of torch's at stage 3. Here torch's own gathers its weight."""
import functools

import torch

from deepspeed.accelerator import get_accelerator

autocast_custom_fwd = functools.partial(torch.amp.custom_fwd, device_type=get_accelerator().device_name())
autocast_custom_bwd = functools.partial(torch.amp.custom_bwd, device_type=get_accelerator().device_name())


def zero3_linear_wrap(input, weight, bias=None):
    """Is torch.nn.functional.linear: input [..., in], weight [out, in], bias [out]."""
    return torch.nn.functional.linear(input, weight, bias)


class LinearModuleForZeroStage3(torch.nn.Linear):
    """Is torch.nn.Linear."""
