"""Trains the example's GPT for the demo's length with what ranks send compressed and not, and compares held-out losses (markdown).

    python held_out_loss.py --program build/release/examples/gpt2 [--data FILE] [--steps 1200] [--seeds 1] [--only zeropp onebit]

Four ranks stand for two nodes of two. Each pair is one recipe with and without compression: ZeRO-3 beside ZeRO++ (8-bit weights, 4-bit
gradients, secondary partitions; every parameter travels), and Adam beside 1-bit Adam (a quarter of the steps is its warm-up). 32
windows a step, the demo's schedule. Ends with status 1 where a held-out loss is more than 1 % above that of its uncompressed run.
"""

import argparse
import json
import os
import pathlib
import re
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "tests" / "golden" / "deepspeed_training"))

from launch_ranks import launch_command  # noqa: E402

MOST_ABOVE = 0.01
STAGE_3 = {"stage": 3, "stage3_param_persistence_threshold": 0}
ZEROPP = {**STAGE_3, "zero_quantized_weights": True, "zero_quantized_gradients": True, "zero_hpz_partition_size": 2}


def pairs_of(steps):
    """The recipes: what a config has beside the demo's, without and with compression."""
    adamw = {"type": "AdamW", "params": {"lr": 3e-3, "betas": [0.9, 0.99], "eps": 1e-8, "weight_decay": 0.1}}
    # 1-bit Adam is Adam without bias correction, and is not clipped.
    adam = {"lr": 1e-3, "betas": [0.9, 0.99], "eps": 1e-8}
    one_bit = {"type": "OneBitAdam", "params": {**adam, "freeze_step": steps // 4}}
    uncompressed = {"type": "Adam", "params": {**adam, "bias_correction": False}}
    base = {"gradient_clipping": 1.0, "optimizer": adamw}
    return {
        "zeropp": (("ZeRO-3, fp32", {**base, "zero_optimization": STAGE_3}), ("ZeRO++, fp32", {**base, "zero_optimization": ZEROPP})),
        "zeropp_bf16": (
            ("ZeRO-3, bf16", {**base, "bf16": {"enabled": True}, "zero_optimization": STAGE_3}),
            ("ZeRO++, bf16", {**base, "bf16": {"enabled": True}, "zero_optimization": ZEROPP}),
        ),
        "onebit": (("Adam, fp32", {"optimizer": uncompressed}), ("1-bit Adam, fp32", {"optimizer": one_bit})),
    }


def held_out_loss(options, config, seed):
    steps = options.steps
    whole = {
        "train_micro_batch_size_per_gpu": 8,
        "scheduler": {
            "type": "WarmupCosineLR",
            "params": {"total_num_steps": steps, "warmup_num_steps": steps // 12, "warmup_type": "linear", "cos_min_ratio": 0.01},
        },
        **config,
    }
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "config.json"
        path.write_text(json.dumps(whole))
        words = [options.program.resolve(), "--deepspeed_config", path, "--steps", steps, "--log_every", steps, "--seed", seed]
        words += ["--data", options.data.resolve()] if options.data else []
        text = launch_command([str(word) for word in words], 4)
    return float(re.findall(r"held-out loss ([0-9.]+)", text)[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--data", type=pathlib.Path, help="text to train on (default: that of the example)")
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--only", nargs="+", default=["zeropp", "zeropp_bf16", "onebit"])
    options = parser.parse_args()
    os.environ["DEEPSPEED_RANKS_PER_NODE"] = "2"
    pairs, is_near = pairs_of(options.steps), True
    print("| run | seed | held-out loss (nats a character) | above the uncompressed run |\n|---|---|---|---|", flush=True)
    for name in options.only:
        for seed in options.seeds:
            losses = []
            for label, config in pairs[name]:
                losses.append(held_out_loss(options, config, seed))
                above = losses[-1] / losses[0] - 1
                is_near &= above <= MOST_ABOVE
                print(f"| {label} | {seed} | {losses[-1]:.4f} | {f'{above:+.2%}' if len(losses) > 1 else ''} |", flush=True)
    sys.exit(0 if is_near else 1)


if __name__ == "__main__":
    main()
