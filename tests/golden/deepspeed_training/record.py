"""Trains the GPT of gpt.py under DeepSpeed (CPU, 2 ranks, stages 0 to 3) and writes or checks the golden files.

python record.py            writes <variant>.json, <variant>.bin and first_gradient.bin beside this file
python record.py --check    trains again and compares with the files
python record.py --out DIR  writes somewhere else
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

HERE = pathlib.Path(__file__).resolve().parent
WORLD_SIZE = 2
NUM_STEPS = 50
STAGES = (0, 1, 2, 3)
MODEL = {"vocabulary": 48, "context": 11, "width": 14, "layers": 2, "heads": 2}
WEIGHT_SCALE = 0.25
# Stages sum gradients in other orders, so they differ by rounding; Adam enlarges that where a gradient is noise.
STAGE_LOSS_TOLERANCE = 1e-5
STAGE_UPDATE_TOLERANCE = 1e-4
# Other machines choose other matrix kernels.
CHECK_LOSS_TOLERANCE = 1e-4
CHECK_UPDATE_TOLERANCE = 1e-3

ADAMW = {"type": "AdamW", "params": {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-5, "weight_decay": 0.1}}
SGD = {"type": "SGD", "params": {"lr": 0.02, "momentum": 0.9}}
COSINE = {"type": "WarmupCosineLR", "params": {"total_num_steps": NUM_STEPS, "warmup_num_steps": 5}}
VARIANTS = {
    "adamw_clip": {"optimizer": ADAMW, "gradient_clipping": 1.0, "scheduler": COSINE},
    "sgd_clip": {"optimizer": SGD, "gradient_clipping": 1.0, "zero_allow_untested_optimizer": True},
    "sgd": {"optimizer": SGD, "gradient_clipping": 0.0, "zero_allow_untested_optimizer": True},
}


def zero_config(stage):
    """At stage 3 all of this model is partitioned; DeepSpeed's threshold would keep it whole."""
    return {"stage": stage, **({"stage3_param_persistence_threshold": 0} if stage == 3 else {})}


def ds_config(variant, stage):
    return {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 2,
        "zero_optimization": zero_config(stage),
        **VARIANTS[variant],
    }


def build_model():
    from gpt import GPT

    model = GPT(**MODEL)
    formula.fill_parameters(model, WEIGHT_SCALE)
    return model


def flat_parameters(model):
    return np.concatenate([p.detach().numpy().reshape(-1) for p in model.parameters()])


def train_as_rank(variant, stage, folder):
    """One rank of one run; writes losses, norms and rates, and on rank 0 the final parameters."""
    import torch

    import deepspeed

    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo")
    config = ds_config(variant, stage)
    model = build_model()
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    micro_batch = config["train_micro_batch_size_per_gpu"]
    accumulation = config["gradient_accumulation_steps"]
    losses, norms, rates = [], [], []
    for step in range(NUM_STEPS):
        step_losses = []
        for k in range(accumulation):
            tokens, targets = formula.batch(
                step * accumulation + k, engine.global_rank, WORLD_SIZE, micro_batch, MODEL["context"], MODEL["vocabulary"]
            )
            loss = engine(tokens, targets)
            engine.backward(loss)
            if k == accumulation - 1:
                rates.append(engine.get_lr()[0])
            engine.step()
            step_losses.append(loss.item())
        losses.append(sum(step_losses) / accumulation)
        norm = engine.get_global_grad_norm()
        norms.append(None if norm is None else float(norm))
    (folder / f"rank{engine.global_rank}.json").write_text(json.dumps({"losses": losses, "norms": norms, "rates": rates}))
    with deepspeed.zero.GatheredParameters(list(model.parameters()), enabled=stage == 3):
        if engine.global_rank == 0:
            flat_parameters(engine.module).tofile(folder / "parameters.bin")


def run(variant, stage):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        launch_ranks(__file__, ["--rank-of", variant, stage, folder], WORLD_SIZE)
        ranks = [json.loads((folder / f"rank{r}.json").read_text()) for r in range(WORLD_SIZE)]
        return {
            "losses": np.array([r["losses"] for r in ranks]).T,
            "norms": ranks[0]["norms"],
            "rates": ranks[0]["rates"],
            "parameters": np.fromfile(folder / "parameters.bin", np.float32),
        }


def first_gradient():
    """The plain gradient of rank 0's first micro batch, without DeepSpeed."""
    import torch

    torch.set_num_threads(1)
    model = build_model()
    loss = model(*formula.batch(0, 0, WORLD_SIZE, 4, MODEL["context"], MODEL["vocabulary"]))
    loss.backward()
    return loss.item(), np.concatenate([p.grad.numpy().reshape(-1) for p in model.parameters()])


def loss_difference(a, b):
    return float(np.max(np.abs(a - b) / np.abs(b)))


def update_difference(a, b):
    """The largest difference of an element's total update, relative to its parameter's largest update."""
    model = build_model()
    start, worst, worst_name = 0, 0.0, ""
    for name, parameter in model.named_parameters():
        end = start + parameter.numel()
        initial = parameter.detach().numpy().reshape(-1)
        reference = b[start:end] - initial
        difference = float(np.max(np.abs((a[start:end] - initial) - reference)) / np.max(np.abs(reference)))
        if difference > worst:
            worst, worst_name = difference, name
        start = end
    return worst, worst_name


def require(value, bound, what):
    print(f"  {what}: {value:.2e} (bound {bound:.0e})", flush=True)
    if not value <= bound:
        raise SystemExit(f"{what} is {value:.3e}, expected at most {bound:.0e}")


def train_all_stages(variant):
    print(variant, flush=True)
    results = {stage: run(variant, stage) for stage in STAGES}
    base = results[0]
    for stage in STAGES[1:]:
        require(loss_difference(results[stage]["losses"], base["losses"]), STAGE_LOSS_TOLERANCE, f"losses of stage {stage} against stage 0")
        difference, name = update_difference(results[stage]["parameters"], base["parameters"])
        require(difference, STAGE_UPDATE_TOLERANCE, f"updates of stage {stage} against stage 0 (worst: {name})")
    return results


def golden_values(variant, results):
    norms = {f"stage{stage}": [None if n is None else float(f"{n:.7g}") for n in result["norms"]] for stage, result in results.items()}
    return {
        "model": MODEL,
        "weight_scale": WEIGHT_SCALE,
        "world_size": WORLD_SIZE,
        "num_steps": NUM_STEPS,
        "ds_config": {k: v for k, v in ds_config(variant, 0).items() if k != "zero_optimization"},
        "losses": [[float(f"{x:.9g}") for x in row] for row in results[0]["losses"]],
        "learning_rates": [float(f"{x:.12g}") for x in results[0]["rates"]],
        "grad_norms": norms,
        "parameters": f"{variant}.bin",
    }


def dump(values):
    """Keys on lines of their own, long lists on one."""
    return "{\n" + ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in values.items()) + "\n}\n"


def record(folder):
    import torch

    import deepspeed

    folder.mkdir(parents=True, exist_ok=True)
    made_with = {"deepspeed": deepspeed.__version__, "torch": torch.__version__.split("+")[0]}
    loss, gradient = first_gradient()
    gradient.tofile(folder / "first_gradient.bin")
    for variant in VARIANTS:
        results = train_all_stages(variant)
        values = {"made_with": made_with, "first_micro_batch_loss": float(f"{loss:.9g}"), **golden_values(variant, results)}
        (folder / f"{variant}.json").write_text(dump(values))
        results[0]["parameters"].tofile(folder / f"{variant}.bin")


def check():
    for variant in VARIANTS:
        golden = json.loads((HERE / f"{variant}.json").read_text())
        parameters = np.fromfile(HERE / f"{variant}.bin", np.float32)
        for stage, result in train_all_stages(variant).items():
            require(
                loss_difference(result["losses"], np.array(golden["losses"])),
                CHECK_LOSS_TOLERANCE,
                f"losses of stage {stage} against the file",
            )
            difference, name = update_difference(result["parameters"], parameters)
            require(difference, CHECK_UPDATE_TOLERANCE, f"updates of stage {stage} against the file (worst: {name})")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    parser.add_argument("--rank-of", nargs=3, metavar=("VARIANT", "STAGE", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank_of:
        variant, stage, folder = options.rank_of
        train_as_rank(variant, int(stage), pathlib.Path(folder))
    elif options.check:
        check()
    else:
        record(options.out)


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    main()
