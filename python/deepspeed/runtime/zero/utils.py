"""What of ZeRO is asked for beside the engine."""
import torch.distributed as dist

from deepspeed._errors import CheckpointError


class ZeRORuntimeException(CheckpointError):
    """Is the name of DeepSpeed for optimizer states that fit another number of ranks; here such states load."""


def get_lst_from_rank0(lst):
    """Returns rank 0's list of whole numbers on all ranks, which each call it with a list of that length."""
    import torch

    from deepspeed.accelerator import get_accelerator

    numbers = torch.tensor(lst, dtype=torch.int, device=get_accelerator().current_device_name())
    dist.broadcast(numbers, src=0)
    return list(numbers.cpu().numpy())


def assert_ints_same_as_other_ranks(ints):
    """Raises RuntimeError where this rank's numbers differ from rank 0's. Collective."""
    of_rank0 = get_lst_from_rank0(ints)
    if ints != of_rank0:
        raise RuntimeError(f"disagreement between rank0 and rank{dist.get_rank()}: rank0: {of_rank0}, rank{dist.get_rank()}: {ints}")
