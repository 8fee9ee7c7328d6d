"""What Python programs make of our weights, where DeepSpeed and huggingface_hub are installed: shards of safetensors and of
torch.save, and the functions of the script zero_to_fp32.py.

    python weights_in_python.py BUILD_FOLDER

One line a case; the exit code is 0 where all agree.
"""

import argparse
import contextlib
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import huggingface_hub
import safetensors
import torch

from deepspeed.utils import zero_to_fp32 as deepspeeds

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden" / "deepspeed_checkpoints"
# Buffers become fp32, as DeepSpeed's converter has them; frozen parameters are fp32 in ours, in their own dtype in its.
NAMES_MISSING_AT_STAGE_1 = {"frozen.weight", "frozen.bias"}


def script_of(build, folder):
    """The script as save_checkpoint() leaves it, loaded as a module."""
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "zero_optimization": {"stage": 2},
        "optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
    }
    subprocess.run(
        [build / "tests/train_small_net", "--config", json.dumps(config), "--steps", "1", "--micro_batch", "4", "--save", folder / "run"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    spec = importlib.util.spec_from_file_location("ours", folder / "run/zero_to_fp32.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def deepspeeds_weights(source):
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        weights = deepspeeds.get_fp32_state_dict_from_zero_checkpoint(str(source))
    return {name: tensor.contiguous() for name, tensor in weights.items()}


def same(ours, theirs, may_lack=frozenset()):
    return set(ours) - may_lack == set(theirs) - may_lack and all(
        torch.equal(ours[name].float(), tensor.float()) for name, tensor in theirs.items()
    )


class Holder(torch.nn.Module):
    """A model with these tensors, all zero."""

    def __init__(self, tensors):
        super().__init__()
        for name, tensor in tensors.items():
            module = self
            *path, last = name.split(".")
            for part in path:
                if not hasattr(module, part):
                    module.add_module(part, torch.nn.Module())
                module = getattr(module, part)
            module.register_parameter(last, torch.nn.Parameter(torch.zeros_like(tensor)))


def cases(script, folder):
    for name in ("stage1_fp32", "stage2_fp32", "stage1_bf16", "stage2_bf16"):
        source = GOLDEN / name
        theirs = deepspeeds_weights(source)
        missing = NAMES_MISSING_AT_STAGE_1 if name.startswith("stage1") else frozenset()
        for lazy in (False, True):
            ours = script.get_fp32_state_dict_from_zero_checkpoint(source, lazy_mode=lazy)
            yield f"{name}: the state dictionary, lazy_mode={lazy}", same(ours, theirs, missing)
        trained = script.get_fp32_state_dict_from_zero_checkpoint(source, "global_step3", exclude_frozen_parameters=True)
        yield f"{name}: without frozen parameters", not NAMES_MISSING_AT_STAGE_1 & set(trained)
        model = script.load_state_dict_from_zero_checkpoint(Holder(theirs), source)
        yield f"{name}: loaded into a model", same(dict(model.state_dict()), theirs)
        for safe in (True, False):
            output = folder / f"{name}_{safe}"
            script.convert_zero_checkpoint_to_fp32_state_dict(source, output, max_shard_size=150, safe_serialization=safe)
            shards = sorted(output.glob("*.safetensors" if safe else "*.bin"))
            holder = Holder(ours)
            result = huggingface_hub.load_torch_model(holder, output, strict=True, safe=safe)
            yield (
                f"{name}: {len(shards)} shards by huggingface_hub, safetensors={safe}",
                len(shards) > 2 and not result.missing_keys and not result.unexpected_keys and same(dict(holder.state_dict()), ours),
            )
            if safe:
                read = {}
                for shard in shards:
                    with safetensors.safe_open(shard, framework="pt") as file:
                        read.update({key: file.get_tensor(key) for key in file.keys()})
                yield f"{name}: shards by safetensors", same(read, ours)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=lambda text: pathlib.Path(text).resolve())
    arguments = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for case, agrees in cases(script_of(arguments.build, folder), folder):
            print("agrees " if agrees else "DIFFERS", case, flush=True)
            failed += not agrees
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
