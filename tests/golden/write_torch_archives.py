"""Writes the small files of tests/golden/torch_archive with torch.save (torch 2.11), for the reading tests.

Run from the repository root: python tests/golden/write_torch_archives.py
"""

import argparse
import collections
import enum
import pathlib
import sys
import types

import torch

FOLDER = pathlib.Path(__file__).parent / "torch_archive"


def model_values():
    weight = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    module = collections.OrderedDict(
        wte=weight,
        lm_head=weight,
        transposed=weight.t(),
        row=weight[1],
        bf16=torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
        half=torch.tensor([0.5], dtype=torch.float16),
        int64=torch.tensor([1, -(2**40)]),
        flags=torch.tensor([True, False]),
        zero_d=torch.tensor(2.5),
        empty=torch.empty(0, 3),
        uint16=torch.tensor([65535], dtype=torch.uint16),
    )
    return {
        "module": module,
        "names": {"one"},
        "size": torch.Size([3, 4]),
        "dtype": torch.bfloat16,
        "none": None,
        "numbers": [0, 255, 65536, -1, 2**62, 0.1, True],
        "tuple": (1, (2, 3)),
        "text": "äö€",
        "bytes": b"\x00\xff",
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "by_number": {0: {"step": 3}},
        "shared_list": [[1]] * 3,
        "device": torch.device("cpu"),
    }


def deepspeed_classes():
    """Classes of DeepSpeed's names: the file needs the names alone, so DeepSpeed itself need not be installed."""

    def module(name):
        sys.modules[name] = types.ModuleType(name)
        return sys.modules[name]

    for name in ("deepspeed", "deepspeed.runtime", "deepspeed.runtime.fp16", "deepspeed.runtime.zero", "deepspeed.utils"):
        module(name)
    scaler = type("LossScaler", (), {"__module__": "deepspeed.runtime.fp16.loss_scaler"})
    module("deepspeed.runtime.fp16.loss_scaler").LossScaler = scaler
    stage = enum.Enum("ZeroStageEnum", {"optimizer_states": 1, "gradients": 2}, module="deepspeed.runtime.zero.config")
    module("deepspeed.runtime.zero.config").ZeroStageEnum = stage
    address = type("fragment_address", (), {"__module__": "deepspeed.utils.tensor_fragment"})
    module("deepspeed.utils.tensor_fragment").fragment_address = address
    return scaler, stage, address


def optimizer_values():
    scaler_class, stage, address_class = deepspeed_classes()
    scaler = scaler_class()
    scaler.cur_scale, scaler.dynamic = 1.0, False
    address = address_class()
    address.numel, address.start = 5, 2
    return {
        "loss_scaler": scaler,
        "zero_stage": stage.gradients,
        "param_slice_mappings": [collections.OrderedDict(w=address)],
        "single_partition_of_fp32_groups": [torch.arange(8, dtype=torch.float32)[:5]],
    }


def main():
    FOLDER.mkdir(exist_ok=True)
    torch.save(model_values(), FOLDER / "model.pt")
    torch.save({"numbers": [1, 2], "w": torch.ones(2)}, FOLDER / "protocol4.pt", pickle_protocol=4)
    torch.save(optimizer_values(), FOLDER / "optimizer.pt")
    torch.save({"namespace": argparse.Namespace(lr=0.1)}, FOLDER / "namespace.pt")


if __name__ == "__main__":
    main()
