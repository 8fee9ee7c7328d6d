"""Trains the GPT of gpt.py under DeepSpeed in bf16, fp16 and autocast (CPU, 2 ranks) and writes or checks precision.json.

python record_precision.py            writes precision.json beside this file
python record_precision.py --check    trains again and compares with the file
"""

import argparse
import json
import os
import pathlib
import sys
import tempfile

import formula
import numpy as np
from launch_ranks import launch_ranks
from record import ADAMW, HERE, MODEL, NUM_STEPS, SGD, WEIGHT_SCALE, WORLD_SIZE, build_model, zero_config

GOLDEN = HERE / "precision.json"
EVERY = 32  # of the updated weights, this one in so many is kept
# Other machines choose other matrix kernels, and 16-bit weights turn a last bit into half a percent of a weight.
CHECK_LOSS_TOLERANCE = 3e-3
CHECK_UPDATE_TOLERANCE = 0.1

BF16 = {"bf16": {"enabled": True}}
FP16 = {"fp16": {"enabled": True, "initial_scale_power": 8}}
AUTOCAST = {"torch_autocast": {"enabled": True, "dtype": "bfloat16"}}
AUTOCAST_FP16 = {"torch_autocast": {"enabled": True, "dtype": "float16"}}
UNTESTED = {"zero_allow_untested_optimizer": True}
# Left out are the cases in which DeepSpeed does not do what its documentation says: Adam in 16 bits at stage 0 (one
# step too many), fp16 at stage 0 with a loss scale (the loss is not multiplied by it), autocast to fp16 with clipping at
# stages 1 and 2 (the norm still has the loss scale in it).
VARIANTS = {
    "autocast_adamw": {"stages": (0, 1, 2, 3), "config": {**AUTOCAST, "optimizer": ADAMW, "gradient_clipping": 1.0}},
    "autocast_sgd": {"stages": (0, 1, 2, 3), "config": {**AUTOCAST, **UNTESTED, "optimizer": SGD, "gradient_clipping": 0.0}},
    "autocast_fp16_sgd": {"stages": (0, 1, 2, 3), "config": {**AUTOCAST_FP16, **UNTESTED, "optimizer": SGD, "gradient_clipping": 0.0}},
    "autocast_fp16_adamw": {"stages": (0, 1, 2, 3), "config": {**AUTOCAST_FP16, "optimizer": ADAMW, "gradient_clipping": 0.0}},
    "bf16_adamw": {"stages": (1, 2, 3), "config": {**BF16, "optimizer": ADAMW, "gradient_clipping": 1.0}},
    "bf16_sgd": {"stages": (0, 1, 2, 3), "config": {**BF16, **UNTESTED, "optimizer": SGD, "gradient_clipping": 1.0}},
    "bf16_fp32_sums": {
        "stages": (1,),
        "config": {**BF16, "optimizer": ADAMW, "gradient_clipping": 1.0, "data_types": {"grad_accum_dtype": "fp32"}},
    },
    "fp16_adamw": {"stages": (1, 2, 3), "config": {**FP16, "optimizer": ADAMW, "gradient_clipping": 1.0}},
    "fp16_sgd": {"stages": (1, 2, 3), "config": {**FP16, **UNTESTED, "optimizer": SGD, "gradient_clipping": 1.0}},
    "fp16_sgd_unscaled": {
        "stages": (0,),
        "config": {**UNTESTED, "fp16": {"enabled": True, "loss_scale": 1}, "optimizer": SGD, "gradient_clipping": 1.0},
    },
}


def ds_config(variant, stage):
    return {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 2,
        "zero_optimization": zero_config(stage),
        **VARIANTS[variant]["config"],
    }


def own_masters(engine):
    """The fp32 weights that this rank updates, flat, without padding at the end of the last partition."""
    import torch

    optimizer = engine.optimizer
    if hasattr(optimizer, "fp32_partitioned_groups_flat"):  # stage 3: the shards of its parameters
        return torch.cat([part.detach() for part in optimizer.fp32_partitioned_groups_flat]).numpy()
    for name in ("single_partition_of_fp32_groups", "fp32_groups_flat_partition", "fp32_groups_flat"):
        if hasattr(optimizer, name):
            return getattr(optimizer, name)[0].detach().float().numpy()
    if hasattr(optimizer, "fp32_groups"):
        return torch.cat([p.detach().float().reshape(-1) for p in optimizer.fp32_groups[0]]).numpy()
    return np.concatenate([p.detach().float().numpy().reshape(-1) for p in engine.module.parameters()])


def train_as_rank(variant, stage, folder):
    import torch

    import deepspeed
    from deepspeed.accelerator import get_accelerator

    torch.set_num_threads(1)
    # The CPU computes in float16, if slowly; DeepSpeed asks for instructions that make it fast.
    accelerator = get_accelerator()
    type(accelerator).is_fp16_supported = lambda self: True
    accelerator.supported_dtypes = lambda: [torch.float, torch.half, torch.bfloat16]
    deepspeed.init_distributed("gloo")
    config = ds_config(variant, stage)
    model = build_model()
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    accumulation = config["gradient_accumulation_steps"]
    losses = []
    for step in range(NUM_STEPS):
        total = 0.0
        for k in range(accumulation):
            tokens, targets = formula.batch(
                step * accumulation + k,
                engine.global_rank,
                WORLD_SIZE,
                config["train_micro_batch_size_per_gpu"],
                MODEL["context"],
                MODEL["vocabulary"],
            )
            loss = engine(tokens, targets)
            engine.backward(loss)
            engine.step()
            total += loss.item()
        losses.append(total / accumulation)
    if engine.skipped_steps != 0:
        raise SystemExit(f"{variant}: {engine.skipped_steps} steps were skipped")
    (folder / f"rank{engine.global_rank}.json").write_text(json.dumps({"losses": losses}))
    own_masters(engine).astype(np.float32).tofile(folder / f"rank{engine.global_rank}.bin")


def initial_weights():
    return np.concatenate([p.detach().numpy().reshape(-1) for p in build_model().parameters()])


def join_shards(parts):
    """Of the flat shards of each rank: all weights, without the padding of each parameter."""
    whole, start = [], 0
    for parameter in build_model().parameters():
        size = -(-parameter.numel() // len(parts))
        whole.append(np.concatenate([part[start : start + size] for part in parts])[: parameter.numel()])
        start += size
    return np.concatenate(whole)


def run(variant, stage):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        launch_ranks(__file__, ["--rank-of", variant, stage, folder], WORLD_SIZE)
        losses = [json.loads((folder / f"rank{r}.json").read_text())["losses"] for r in range(WORLD_SIZE)]
        parts = [np.fromfile(folder / f"rank{r}.bin", np.float32) for r in range(WORLD_SIZE)]
    if stage == 3:
        return {"losses": np.array(losses).T, "masters": join_shards(parts)}
    numel = initial_weights().size
    masters = parts[0] if parts[0].size >= numel else np.concatenate(parts)
    return {"losses": np.array(losses).T, "masters": masters[:numel]}


def largest_updates(masters):
    """Of each parameter: what a difference is relative to."""
    updates, start, result = np.abs(masters - initial_weights()), 0, []
    for parameter in build_model().parameters():
        result.append(float(updates[start : start + parameter.numel()].max()))
        start += parameter.numel()
    return result


def golden_values(variant, stage):
    result = run(variant, stage)
    print(variant, stage, result["losses"][0], result["losses"][-1], flush=True)
    return {
        "losses": [[float(f"{x:.8g}") for x in row] for row in result["losses"]],
        "largest_updates": [float(f"{x:.5g}") for x in largest_updates(result["masters"])],
        "masters": [float(f"{x:.8g}") for x in result["masters"][::EVERY]],
    }


def record():
    import torch

    import deepspeed

    lines = []
    for variant, spec in VARIANTS.items():
        config = {k: v for k, v in ds_config(variant, 0).items() if k != "zero_optimization"}
        stages = ",\n  ".join(f'"stage{stage}": {json.dumps(golden_values(variant, stage))}' for stage in spec["stages"])
        lines.append(f' "{variant}": {{\n  "ds_config": {json.dumps(config)},\n  {stages}}}')
    head = {
        "made_with": {"deepspeed": deepspeed.__version__, "torch": torch.__version__.split("+")[0]},
        "model": MODEL,
        "weight_scale": WEIGHT_SCALE,
        "world_size": WORLD_SIZE,
        "num_steps": NUM_STEPS,
        "every": EVERY,
    }
    GOLDEN.write_text("{\n" + "".join(f" {json.dumps(k)}: {json.dumps(v)},\n" for k, v in head.items()) + ",\n".join(lines) + "\n}\n")


def check():
    golden = json.loads(GOLDEN.read_text())
    for variant, spec in VARIANTS.items():
        for stage in spec["stages"]:
            got, expected = golden_values(variant, stage), golden[variant][f"stage{stage}"]
            a, b = np.array(got["losses"]), np.array(expected["losses"])
            losses = float(np.max(np.abs(a - b) / np.abs(b)))
            a, b = np.array(got["masters"]), np.array(expected["masters"])
            updates = float(np.max(np.abs(a - b)) / max(expected["largest_updates"]))
            print(f"  losses {losses:.1e}, updates {updates:.1e}", flush=True)
            if not (losses <= CHECK_LOSS_TOLERANCE and updates <= CHECK_UPDATE_TOLERANCE):
                raise SystemExit(f"{variant} at stage {stage} is not what the file holds")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--rank-of", nargs=3, metavar=("VARIANT", "STAGE", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank_of:
        variant, stage, folder = options.rank_of
        train_as_rank(variant, int(stage), pathlib.Path(folder))
    elif options.check:
        check()
    else:
        record()


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    main()
