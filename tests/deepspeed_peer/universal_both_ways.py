"""Universal checkpoints both ways, where DeepSpeed is installed: a run that this library began goes on in DeepSpeed and the
other way round, at another stage and on another number of ranks; the next losses are those of the run that never stopped.

    python universal_both_ways.py BUILD_FOLDER

One line a case; the exit code is 0 where all agree.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE.parent / "golden"
sys.path[:0] = [str(GOLDEN / "deepspeed_training"), str(GOLDEN / "deepspeed_checkpoints")]
os.environ.setdefault("DS_ACCELERATOR", "cpu")

from launch_ranks import launch_command, launch_ranks  # noqa: E402

GLOBAL_BATCH, STEPS = 12, 3
TOLERANCE = {"fp32": 2e-6, "bf16": 4e-3}  # relative; sums of other orders, in bf16 rounded to the weights
# dtype, stage and ranks of the first half, stage and ranks of the second. DeepSpeed refuses fp16 on a CPU.
OURS_TO_DEEPSPEED = [("fp32", 1, 2, 2, 1), ("fp32", 0, 1, 1, 3), ("fp32", 2, 3, 1, 2), ("bf16", 2, 2, 1, 3),
                     ("bf16", 0, 2, 2, 2)]
DEEPSPEED_TO_OURS = [("fp32", 1, 2, 2, 3), ("fp32", 2, 2, 0, 1), ("bf16", 1, 2, 2, 1), ("bf16", 2, 3, 0, 2)]


def config_of(dtype, stage, ranks, universal=False):
    config = {
        "train_micro_batch_size_per_gpu": GLOBAL_BATCH // ranks,
        "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.01, "warmup_num_steps": 4, "warmup_type": "linear"}},
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": stage},
    }
    if dtype != "fp32":
        config[dtype] = {"enabled": True}
    if universal:
        config["checkpoint"] = {"load_universal": True}
    return config


def last_json(output):
    return json.loads(output.strip().splitlines()[-1])


class Ours:
    name = "ours"

    def __init__(self, build):
        self.program = build / "tests" / "train_small_net"
        self.converter = build / "bin" / "ds_to_universal"

    def train(self, dtype, stage, ranks, load=None, save=None, universal=False):
        command = [self.program, "--config", json.dumps(config_of(dtype, stage, ranks, universal)), "--steps", STEPS,
                   "--micro_batch", GLOBAL_BATCH // ranks]
        command += ["--load", load] if load else []
        command += ["--save", save] if save else []
        return last_json(launch_command(command, ranks))

    def convert(self, folder, output):
        subprocess.run([self.converter, "--input_folder", folder, "--output_folder", output], check=True,
                       stdout=subprocess.DEVNULL)


class DeepSpeed:
    name = "DeepSpeed"

    def train(self, dtype, stage, ranks, load=None, save=None, universal=False):
        task = json.dumps({"config": config_of(dtype, stage, ranks, universal), "load": load and str(load),
                           "save": save and str(save)})
        return last_json(launch_ranks(__file__, ["--rank-of", task], ranks))

    def convert(self, folder, output):
        subprocess.run([sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal", "--input_folder", folder,
                        "--output_folder", output, "--inject_missing_state", "--num_extract_workers", "1",
                        "--num_merge_workers", "1"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def train_as_rank(task):
    import deepspeed
    import torch

    import formula
    import write_checkpoints as small

    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo")
    model = small.SmallNet()
    formula.fill_parameters(model, small.WEIGHT_SCALE)
    trainable = [p for p in model.parameters() if p.requires_grad]
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=trainable, config=task["config"])
    if task["load"]:
        path, _ = engine.load_checkpoint(task["load"])
        assert path, "nothing was loaded"
    ranks = torch.distributed.get_world_size()
    losses = []
    for step in range(engine.global_steps, engine.global_steps + STEPS):
        loss = engine(*formula.batch(step, engine.global_rank, ranks, GLOBAL_BATCH // ranks, small.CONTEXT,
                                     small.VOCABULARY))
        engine.backward(loss)
        engine.step()
        mean = loss.detach().double()
        torch.distributed.all_reduce(mean)
        losses.append(mean.item() / ranks)
    if task["save"]:
        engine.save_checkpoint(task["save"])
    if engine.global_rank == 0:
        print(json.dumps(losses), flush=True)


def states_of(folder):
    """Every tensor and step of a universal checkpoint, by file."""
    import torch

    states = {}
    for file in sorted(folder.glob("zero/*/*.pt")):
        value = torch.load(file, weights_only=True)
        states[str(file.relative_to(folder))] = value["param"] if isinstance(value, dict) else torch.as_tensor(value)
    return states


def differences(a, b):
    """Names of the files that differ between what two converters made of one checkpoint."""
    import torch

    a, b = states_of(a), states_of(b)
    return sorted(set(a) ^ set(b)) + [name for name in set(a) & set(b) if not torch.equal(a[name].double(), b[name].double())]


def run_case(first, second, dtype, stage, ranks, next_stage, next_ranks, other_converter):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        first.train(dtype, stage, ranks, save=folder)
        expected = first.train(dtype, stage, ranks, load=folder)
        first.convert(folder / "global_step3", folder / "universal")
        found = second.train(dtype, next_stage, next_ranks, load=folder, universal=True)
        error = max(abs(f - e) / e for f, e in zip(found, expected, strict=True))
        good = error <= TOLERANCE[dtype]
        note = ""
        if other_converter:
            (folder / "other").mkdir()
            other_converter.convert(folder / "global_step3", folder / "other" / "universal")
            different = differences(folder / "universal", folder / "other" / "universal")
            good = good and not different
            note = f", both converters' files {'differ: ' + ' '.join(different) if different else 'equal'}"
    print(f"{'ok  ' if good else 'FAIL'} {dtype} {first.name} stage {stage} x{ranks} -> {second.name} stage {next_stage} "
          f"x{next_ranks}: next {STEPS} losses within {error:.1e}{note}", flush=True)
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", type=pathlib.Path)
    parser.add_argument("--rank-of", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank_of:
        train_as_rank(json.loads(options.rank_of))
        return
    if options.build is None:
        parser.error("name the build folder")
    ours, deepspeed = Ours(options.build.resolve()), DeepSpeed()
    results = [run_case(ours, deepspeed, *case, deepspeed if case[1] > 0 else None) for case in OURS_TO_DEEPSPEED]
    results += [run_case(deepspeed, ours, *case, ours) for case in DEEPSPEED_TO_OURS]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
