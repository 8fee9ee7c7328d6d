"""Writes checkpoints with DeepSpeed (CPU, 2 ranks): stages 1 and 2, fp32 and bf16, of a model with frozen, tied, one-element
parameters and buffers; then the fp32 weights that DeepSpeed's own converter makes of each. See README.md.

    python write_checkpoints.py [--out DIR]
"""

import argparse
import json
import os
import pathlib
import shutil
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "deepspeed_training"))
os.environ.setdefault("DS_ACCELERATOR", "cpu")

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import formula  # noqa: E402
from launch_ranks import launch_ranks  # noqa: E402

WORLD_SIZE = 2
MICRO_BATCH, CONTEXT, VOCABULARY, WIDTH = 4, 6, 7, 5
WEIGHT_SCALE = 0.5
STEPS_BEFORE, STEPS_AFTER = 3, 3


class SmallNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.frozen = nn.Linear(WIDTH, WIDTH)
        self.hidden = nn.Linear(WIDTH, WIDTH)
        self.gain = nn.Parameter(torch.empty(1))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("scale", torch.linspace(0.5, 1.5, WIDTH))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.frozen.requires_grad_(False)

    def forward(self, tokens, targets):
        self.calls += 1
        x = self.embed(tokens)
        x = x + self.frozen(x) * self.scale.to(x.dtype)
        x = x + torch.tanh(self.hidden(x)) * (1 + self.gain)
        return F.cross_entropy(self.head(x).float().flatten(0, 1), targets.flatten())


def ds_config(stage, dtype):
    config = {
        "train_micro_batch_size_per_gpu": MICRO_BATCH,
        "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.01, "warmup_num_steps": 4, "warmup_type": "linear"}},
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": stage},
    }
    if dtype == "bf16":
        config["bf16"] = {"enabled": True}
    return config


def train(engine, first_step, num_steps):
    losses = []
    for step in range(first_step, first_step + num_steps):
        loss = engine(*formula.batch(step, engine.global_rank, WORLD_SIZE, MICRO_BATCH, CONTEXT, VOCABULARY))
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    return losses


def write_as_rank(stage, dtype, folder):
    import deepspeed

    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo")
    model = SmallNet()
    formula.fill_parameters(model, WEIGHT_SCALE)
    trainable = [p for p in model.parameters() if p.requires_grad]
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=trainable, config=ds_config(stage, dtype))
    before = train(engine, 0, STEPS_BEFORE)
    engine.save_checkpoint(str(folder), client_state={"note": "written by DeepSpeed", "epoch": 2})
    after = train(engine, STEPS_BEFORE, STEPS_AFTER)
    losses = torch.tensor([before, after], dtype=torch.float64)
    everyone = [torch.empty_like(losses) for _ in range(WORLD_SIZE)]
    torch.distributed.all_gather(everyone, losses)
    if engine.global_rank == 0:
        values = {
            "made_with": {"deepspeed": deepspeed.__version__, "torch": torch.__version__.split("+")[0]},
            "ds_config": ds_config(stage, dtype), "weight_scale": WEIGHT_SCALE, "world_size": WORLD_SIZE,
            "micro_batch": MICRO_BATCH, "context": CONTEXT, "vocabulary": VOCABULARY, "width": WIDTH,
            "losses_before_save": torch.stack(everyone)[:, 0].T.tolist(),
            "losses_after_save": torch.stack(everyone)[:, 1].T.tolist(),
        }
        (folder / "expected.json").write_text(json.dumps(values, indent=1) + "\n")


def convert(folder):
    """DeepSpeed's converter: folder/fp32/pytorch_model.bin. Its script, copied into each checkpoint, is not kept."""
    from deepspeed.utils.zero_to_fp32 import convert_zero_checkpoint_to_fp32_state_dict

    convert_zero_checkpoint_to_fp32_state_dict(str(folder), str(folder / "fp32"))
    (folder / "zero_to_fp32.py").unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    parser.add_argument("--rank-of", nargs=3, metavar=("STAGE", "DTYPE", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank_of:
        stage, dtype, folder = options.rank_of
        write_as_rank(int(stage), dtype, pathlib.Path(folder))
        return
    for stage in (1, 2):
        for dtype in ("fp32", "bf16"):
            folder = options.out.resolve() / f"stage{stage}_{dtype}"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            launch_ranks(__file__, ["--rank-of", stage, dtype, folder], WORLD_SIZE)
            convert(folder)


if __name__ == "__main__":
    main()
