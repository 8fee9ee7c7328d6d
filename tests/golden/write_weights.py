"""Writes tests/golden/weights: one small model's weights in the forms in which Python programs leave them, for the tests of
load_weights(). Needs torch 2.11, safetensors and huggingface_hub.

    python tests/golden/write_weights.py

The model is that of tests/support/small_net.h. Element i of the k-th tensor (in the order of NAMES) is k + i / 16; `calls` is
8. The head's weight is that of `embed`.
"""

import pathlib
import shutil

import huggingface_hub
import safetensors.torch
import torch

FOLDER = pathlib.Path(__file__).parent / "weights"
NAMES = ["gain", "embed.weight", "frozen.weight", "frozen.bias", "hidden.weight", "hidden.bias", "scale"]
VOCABULARY, WIDTH = 7, 5


class TiedHead(torch.nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = weight


class SmallNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = torch.nn.Parameter(torch.zeros(1))
        self.embed = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.frozen = torch.nn.Linear(WIDTH, WIDTH)
        self.hidden = torch.nn.Linear(WIDTH, WIDTH)
        self.head = TiedHead(self.embed.weight)
        self.register_buffer("scale", torch.zeros(WIDTH))
        self.register_buffer("calls", torch.tensor(8))


def formula_model():
    model = SmallNet()
    state = model.state_dict()
    for k, name in enumerate(NAMES):
        state[name].copy_(k + torch.arange(state[name].numel()).view(state[name].shape) / 16)
    return model


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    for name in ("bin", "safetensors", "bin_shards", "safetensors_shards"):
        (FOLDER / name).mkdir(parents=True)
    model = formula_model()
    torch.save(model.state_dict(), FOLDER / "bin/pytorch_model.bin")
    safetensors.torch.save_model(model, str(FOLDER / "safetensors/model.safetensors"))  # the head is left out
    for name, safe in (("bin_shards", False), ("safetensors_shards", True)):
        huggingface_hub.save_torch_state_dict(
            model.state_dict(), FOLDER / name, max_shard_size=150, safe_serialization=safe, is_main_process=True
        )
    wrapped = {"module." + name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in model.state_dict().items()}
    torch.save({"epoch": 3, "state_dict": wrapped, "optimizer": {"state": {}, "param_groups": []}}, FOLDER / "trainer.pt")
    torch.save(model.state_dict(), FOLDER / "legacy.bin", _use_new_zipfile_serialization=False)


if __name__ == "__main__":
    main()
