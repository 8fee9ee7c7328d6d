"""Universal checkpoints both ways, where DeepSpeed is installed: a run that this library began goes on in DeepSpeed and the
other way round, at another stage and on another number of ranks; the next losses are those of the run that never stopped.

    python universal_both_ways.py BUILD_FOLDER

One line a case; the exit code is 0 where all agree.
"""

import argparse
import pathlib
import sys
import tempfile

from peers import GLOBAL_BATCH, DeepSpeed, Ours, relative_error
from small_training import ds_config

STEPS = 3
TOLERANCE = {"fp32": 2e-6, "bf16": 4e-3, "fp16": 1e-3}  # relative; sums of other orders, rounded to the weights' dtype
# dtype, stage and ranks of the first half, stage and ranks of the second.
OURS_TO_DEEPSPEED = [
    ("fp32", 1, 2, 2, 1),
    ("fp32", 0, 1, 1, 3),
    ("fp32", 2, 3, 1, 2),
    ("bf16", 2, 2, 1, 3),
    ("bf16", 0, 2, 2, 2),
    ("fp16", 1, 2, 2, 1),
]
DEEPSPEED_TO_OURS = [("fp32", 1, 2, 2, 3), ("fp32", 2, 2, 0, 1), ("bf16", 1, 2, 2, 1), ("bf16", 2, 3, 0, 2), ("fp16", 2, 2, 1, 3)]


def config_of(dtype, stage, ranks, universal=False):
    config = ds_config(stage, dtype, GLOBAL_BATCH // ranks)
    if universal:
        config["checkpoint"] = {"load_universal": True}
    return config


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
        config = config_of(dtype, stage, ranks)
        expected = first.train(config, ranks, steps=STEPS, save=folder, steps_after=STEPS)[STEPS:]
        first.convert_to_universal(folder / f"global_step{STEPS}", folder / "universal")
        found = second.train(config_of(dtype, next_stage, next_ranks, universal=True), next_ranks, load=folder, steps=STEPS)
        error = relative_error(found, expected)
        good = error <= TOLERANCE[dtype]
        note = ""
        if other_converter:
            (folder / "other").mkdir()
            other_converter.convert_to_universal(folder / f"global_step{STEPS}", folder / "other" / "universal")
            different = differences(folder / "universal", folder / "other" / "universal")
            good = good and not different
            note = f", both converters' files {'differ: ' + ' '.join(different) if different else 'equal'}"
    print(
        f"{'ok  ' if good else 'FAIL'} {dtype} {first.name} stage {stage} x{ranks} -> {second.name} stage {next_stage} "
        f"x{next_ranks}: next {STEPS} losses within {error:.1e}{note}",
        flush=True,
    )
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    options = parser.parse_args()
    ours, deepspeed = Ours(options.build.resolve()), DeepSpeed()
    results = [run_case(ours, deepspeed, *case, deepspeed if case[1] > 0 else None) for case in OURS_TO_DEEPSPEED]
    results += [run_case(deepspeed, ours, *case, ours) for case in DEEPSPEED_TO_OURS]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
