"""Writes checkpoints with DeepSpeed on the CPU: stages, precisions, numbers of ranks, and models with frozen, tied,
one-element parameters, buffers or several parameter groups; then the fp32 weights that DeepSpeed's own converter makes of
those with ZeRO. See README.md.

    python write_checkpoints.py [--out DIR] [NAME...]
"""

import argparse
import json
import os
import pathlib
import shutil

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import small_training as small
import torch
from launch_ranks import launch_ranks

HERE = pathlib.Path(__file__).resolve().parent
STEPS_BEFORE, STEPS_AFTER = 3, 3
# name: stage, dtype, ranks, variant
CHECKPOINTS = {
    "stage1_fp32": (1, "fp32", 2, "golden"),
    "stage1_bf16": (1, "bf16", 2, "golden"),
    "stage2_fp32": (2, "fp32", 2, "golden"),
    "stage2_bf16": (2, "bf16", 2, "golden"),
    "stage0_fp32_frozen": (0, "fp32", 2, "frozen"),
    "stage0_bf16_groups": (0, "bf16", 1, "groups"),
    "stage0_bf16_torch_adam": (0, "bf16", 2, "frozen"),
    "stage0_fp16_shared": (0, "fp16", 2, "shared"),
    "stage1_fp16_frozen": (1, "fp16", 1, "frozen"),
    "stage1_fp32_round_robin": (1, "fp32", 2, "groups"),
    "stage2_fp16_groups": (2, "fp16", 2, "groups"),
    "stage2_fp32_shared": (2, "fp32", 1, "shared"),
    "stage2_bf16_plain": (2, "bf16", 1, "plain"),
    "stage3_fp32": (3, "fp32", 2, "golden"),
    "stage3_bf16_groups": (3, "bf16", 2, "groups"),
    "stage3_fp16_frozen": (3, "fp16", 1, "frozen"),
}


def config_of(name):
    stage, dtype, _, _ = CHECKPOINTS[name]
    config = small.ds_config(stage, dtype)
    if name.endswith("round_robin"):
        config["zero_optimization"]["round_robin_gradients"] = True
    if name.endswith("torch_adam"):
        config["optimizer"]["params"]["torch_adam"] = True
    return config


def write_as_rank(name, folder):
    import deepspeed

    _, _, ranks, variant = CHECKPOINTS[name]
    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo")
    engine = small.make_engine(config_of(name), variant, all_parameters=True)
    before = small.train(engine, STEPS_BEFORE)
    engine.save_checkpoint(str(folder), client_state={"note": "written by DeepSpeed", "epoch": 2})
    skipped = engine.skipped_steps
    after = small.train(engine, STEPS_AFTER)
    before, after = small.of_all_ranks(before), small.of_all_ranks(after)
    if engine.global_rank == 0:
        values = {
            "made_with": {"deepspeed": deepspeed.__version__, "torch": torch.__version__.split("+")[0]},
            "ds_config": config_of(name),
            "weight_scale": small.WEIGHT_SCALE,
            "world_size": ranks,
            "micro_batch": small.MICRO_BATCH,
            "context": small.CONTEXT,
            "vocabulary": small.VOCABULARY,
            "width": small.WIDTH,
            **small.VARIANTS[variant],
            "skipped_steps": skipped,
            "losses_before_save": before.T.tolist(),
            "losses_after_save": after.T.tolist(),
        }
        (folder / "expected.json").write_text(json.dumps(values, indent=1) + "\n")


def convert(folder):
    """DeepSpeed's converter: folder/fp32/pytorch_model.bin. Its script, copied into each checkpoint, is not kept."""
    from deepspeed.utils.zero_to_fp32 import convert_zero_checkpoint_to_fp32_state_dict

    convert_zero_checkpoint_to_fp32_state_dict(str(folder), str(folder / "fp32"))
    (folder / "zero_to_fp32.py").unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(CHECKPOINTS), metavar="NAME", help=" ".join(CHECKPOINTS))
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    parser.add_argument("--rank-of", nargs=2, metavar=("NAME", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank_of:
        write_as_rank(options.rank_of[0], pathlib.Path(options.rank_of[1]))
        return
    for name in options.names:
        stage, _, ranks, _ = CHECKPOINTS[name]
        folder = options.out.resolve() / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        launch_ranks(__file__, ["--rank-of", name, folder], ranks)
        if stage > 0:
            convert(folder)


if __name__ == "__main__":
    main()
