"""Records what DeepSpeed's CPU optimizers make of a formula's weights and gradients, for tests/optim.

    python tests/golden/deepspeed_optimizers/record.py

Element i starts at cos(0.11 i); its gradient in step t = 1, 2, ... is sin(0.37 i + 1.1 t), for Muon sin(0.37 i^2 + 1.1 t),
since a matrix of the former has rank 2 and the iteration would enlarge the rounding errors in its null space. Each file holds the
weights after 20 steps, little-endian fp32, of several parameters one after the other. Lion has 7 elements: the vector code of
DeepSpeed's CPU Lion, which takes 8 and more, does not follow its rule. Lamb has no file: DeepSpeed's FusedLamb is a CUDA
kernel alone.
"""

import os
import pathlib
import sys

os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ["TORCHDYNAMO_DISABLE"] = "1"  # Muon's update as it is written
# ninja, which builds the ops, lies beside the interpreter
os.environ["PATH"] = str(pathlib.Path(sys.executable).parent) + os.pathsep + os.environ["PATH"]

import torch

FOLDER = pathlib.Path(__file__).parent
STEPS = 20


def weights(numel):
    return torch.cos(0.11 * torch.arange(numel, dtype=torch.float64)).float()


def gradient(numel, step, power=1):
    return torch.sin(0.37 * torch.arange(numel, dtype=torch.float64) ** power + 1.1 * step).float()


def record(name, numel, make):
    parameter = torch.nn.Parameter(weights(numel))
    optimizer = make(parameter)
    for step in range(1, STEPS + 1):
        parameter.grad = gradient(numel, step)
        optimizer.step()
    (FOLDER / f"{name}.bin").write_bytes(bytes(parameter.detach().untyped_storage()))


def record_groups(name, numels, make):
    """A parameter a group, each with the formula's weights and gradients from element 0 on."""
    parameters = [torch.nn.Parameter(weights(numel)) for numel in numels]
    optimizer = make(*parameters)
    for step in range(1, STEPS + 1):
        for parameter in parameters:
            parameter.grad = gradient(parameter.numel(), step)
        optimizer.step()
    (FOLDER / f"{name}.bin").write_bytes(b"".join(bytes(p.detach().untyped_storage()) for p in parameters))


def record_muon(name, shape, method):
    """The class needs a process group; its update of one matrix does not."""
    from deepspeed.runtime.zero.muon.original_muon import muon_update

    numel = shape[0] * shape[1]
    parameter, momentum = weights(numel).view(shape), torch.zeros(shape)
    for step in range(1, STEPS + 1):
        update = muon_update(gradient(numel, step, power=2).view(shape), momentum, beta=0.95, ns_method=method)
        parameter.mul_(1 - 0.02 * 0.1).add_(update, alpha=-0.02)
    (FOLDER / f"{name}.bin").write_bytes(bytes(parameter.contiguous().untyped_storage()))


def main():
    from deepspeed.ops.op_builder.cpu_adagrad import CPUAdagradBuilder
    from deepspeed.ops.op_builder.cpu_lion import CPULionBuilder

    from deepspeed.ops.adagrad import DeepSpeedCPUAdagrad, cpu_adagrad
    from deepspeed.ops.adam import DeepSpeedCPUAdam
    from deepspeed.ops.lion import DeepSpeedCPULion, cpu_lion

    # Without a GPU DeepSpeed says that it has no such op, though the builders work.
    cpu_adagrad.CPUAdagradBuilder, cpu_lion.CPULionBuilder = CPUAdagradBuilder, CPULionBuilder
    record("cpu_adam", 1003, lambda p: DeepSpeedCPUAdam([p], lr=0.01, weight_decay=0.1))
    record("cpu_adam_l2", 1003, lambda p: DeepSpeedCPUAdam([p], lr=0.01, weight_decay=0.1, adamw_mode=False))
    record("cpu_adam_no_correction", 1003, lambda p: DeepSpeedCPUAdam([p], lr=0.01, weight_decay=0.1, bias_correction=False))
    record_groups(
        "cpu_adam_groups",
        (1003, 517),
        lambda p, q: DeepSpeedCPUAdam(
            [{"params": [p]}, {"params": [q], "lr": 0.003, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.0}],
            lr=0.01,
            weight_decay=0.1,
        ),
    )
    record_groups(
        "cpu_adagrad_groups",
        (1003, 517),
        lambda p, q: DeepSpeedCPUAdagrad(
            [{"params": [p]}, {"params": [q], "lr": 0.003, "eps": 1e-6, "weight_decay": 0.0}], lr=0.01, weight_decay=0.1
        ),
    )
    record("cpu_adagrad", 1003, lambda p: DeepSpeedCPUAdagrad([p], lr=0.01, weight_decay=0.1))
    record("cpu_lion", 7, lambda p: DeepSpeedCPULion([p], lr=0.01, betas=(0.9, 0.99), weight_decay=0.1))
    record_muon("muon_standard", (5, 7), "standard")
    record_muon("muon_gram", (7, 5), "gram")


if __name__ == "__main__":
    main()
