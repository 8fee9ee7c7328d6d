"""Records what DeepSpeed's 1-bit optimizers make of a formula's weights and gradients, for tests/optim.

    python tests/golden/deepspeed_optimizers/record_onebit.py

A matrix of 17 x 59 and a vector of 517: element i starts at cos(0.11 i); its gradient in step t = 1, 2, ... is
sin(0.37 i + 1.1 t) + 0.02 t. Each file holds the weights of both after 20 steps, little-endian fp32, one after the
other. Of two ranks that have the same gradients each believes to be one, and what they exchange arrives as it is: all
but compression itself is DeepSpeed's. Its first call of step() changes nothing but its count, which is put back.
"""

import os
import pathlib
import sys
import types

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import torch

FOLDER = pathlib.Path(__file__).parent
STEPS = 20
SHAPES = ((17, 59), (517,))


class ExactBackend:
    """Stands for DeepSpeed's NcclBackend of two ranks."""

    def __init__(self, mpu):
        self.size, self.rank = 2, 0

    def compressed_allreduce(self, values, worker_error, server_error, local_rank):
        return values


def numbers(shape):
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float64).view(shape)


def set_gradients(parameters, step):
    for parameter in parameters:
        parameter.grad = (torch.sin(0.37 * numbers(parameter.shape) + 1.1 * step) + 0.02 * step).float()


def record(name, make, **arguments):
    sys.modules[make.__module__].dist = types.SimpleNamespace(is_initialized=lambda: True, get_rank=lambda: 0)
    engine = types.SimpleNamespace(mpu=None, local_rank=0, enable_backward_allreduce=True)
    parameters = [torch.nn.Parameter(torch.cos(0.11 * numbers(shape)).float()) for shape in SHAPES]
    optimizer = make(parameters, deepspeed=engine, **arguments)
    set_gradients(parameters, 0)
    optimizer.step()
    for parameter in parameters:
        optimizer.state[parameter]["step"] = 0
    for step in range(1, STEPS + 1):
        set_gradients(parameters, step)
        optimizer.step()
    data = b"".join(bytes(p.detach().contiguous().untyped_storage()) for p in parameters)
    (FOLDER / f"{name}.bin").write_bytes(data)


def main():
    backends = types.ModuleType("nccl")
    backends.NcclBackend = ExactBackend
    sys.modules["deepspeed.runtime.comm.nccl"] = backends
    from deepspeed.runtime.fp16.onebit.adam import OnebitAdam
    from deepspeed.runtime.fp16.onebit.lamb import OnebitLamb
    from deepspeed.runtime.fp16.onebit.zoadam import ZeroOneAdam

    record("onebit_adam", OnebitAdam, lr=0.01, weight_decay=0.1, freeze_step=8)
    record("onebit_lamb", OnebitLamb, lr=0.01, weight_decay=0.1, freeze_step=8, coeff_beta=0.7)
    record("onebit_lamb_no_decay", OnebitLamb, lr=0.01, freeze_step=8, factor_threshold=0.3)
    # The second moment is last renewed in the step behind the one that this names, since the first call counts.
    record(
        "zero_one_adam",
        ZeroOneAdam,
        lr=0.001,
        weight_decay=0.1,
        var_freeze_step=8,
        var_update_scaler=2,
        local_step_scaler=3,
        local_step_clipper=4,
    )


if __name__ == "__main__":
    main()
