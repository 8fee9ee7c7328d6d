"""Checkpoints of pipelines both ways, where DeepSpeed is installed: a run of tests/python/programs/train_pipeline.py (tied weights,
AdamW, accumulation) that one of the two packages began goes on in the other, and its next losses are those of the run that never
stopped.

    python pipelines_both_ways.py BUILD_FOLDER

The Python that runs this has DeepSpeed and the torch that the package of BUILD_FOLDER was built for. One line a case; the exit
code is 0 where all agree.
"""

import argparse
import os
import pathlib
import sys
import tempfile

from peers import relative_error

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
from launching import run

SAVED_AT, STEPS, TOLERANCE = 4, 14, 1e-6  # the 10 losses after the checkpoint
TOLERANCE_BF16 = 4e-3  # sums of other orders, and weights that round to a neighbour
# Ranks and stages of the run that is saved, those of the run that goes on, and the ZeRO stage. DeepSpeed reads the states of the
# optimizer at the number of stages and ranks of the run that wrote them alone; ours at any.
OURS_TO_DEEPSPEED = [((2, 2), (2, 2), 0), ((2, 2), (2, 2), 1), ((4, 4), (4, 4), 1), ((4, 2), (4, 2), 1), ((2, 1), (2, 1), 1)]
DEEPSPEED_TO_OURS = [*OURS_TO_DEEPSPEED, ((2, 2), (1, 1), 1), ((2, 2), (4, 4), 1), ((4, 4), (2, 2), 1), ((4, 2), (2, 1), 1)]
# At ZeRO stage 0 DeepSpeed's files do not name the parameters, whose cut into stages is found by their sizes.
OTHER_STAGES = [((ranks, ranks), (others, others), 0) for ranks in (1, 2, 4) for others in (1, 2, 3, 4) if others != ranks]
WITH_DATA_RANKS = [((4, 2), (2, 1), 0), ((4, 2), (4, 4), 0), ((2, 1), (4, 2), 0), ((4, 2), (4, 2), 0), ((2, 2), (2, 1), 0)]
UNNAMED_TO_OURS = [*OTHER_STAGES, *WITH_DATA_RANKS]
# DeepSpeed trains with its BF16_Optimizer at ZeRO stage 0, whose checkpoints it cannot load itself, and at stage 1 with these sums.
BF16_TO_OURS = [((2, 2), (2, 2), 0), ((2, 1), (2, 1), 0), ((4, 2), (1, 1), 0), ((2, 1), (4, 4), 0)]
SUMS_TO_DEEPSPEED = [((2, 2), (2, 2), 1), ((2, 1), (2, 1), 1), ((4, 2), (4, 2), 1)]
SUMS_TO_OURS = [*SUMS_TO_DEEPSPEED, ((4, 2), (1, 1), 1), ((2, 1), (4, 4), 1)]
OPTIMIZERS = [
    {"type": "Adam", "params": {"lr": 0.003, "torch_adam": True}},
    {"type": "SGD", "params": {"lr": 0.1}},
    {"type": "SGD", "params": {"lr": 0.05, "momentum": 0.9}},
]


def run_case(first, second, saved, resumed, zero, **more):
    with tempfile.TemporaryDirectory() as folder:
        begun = train(first, *saved, zero, save=folder, save_at=SAVED_AT, **more)
        goes_on = train(second, *resumed, zero, load=folder, **more)
    error = relative_error(goes_on, begun[SAVED_AT:])
    is_good = error <= (TOLERANCE_BF16 if more.get("dtype") == "bf16" else TOLERANCE)
    print(
        f"{'ok  ' if is_good else 'FAIL'} {first[0]} {saved[1]} stages x {saved[0] // saved[1]} -> {second[0]} {resumed[1]} stages x "
        f"{resumed[0] // resumed[1]}, ZeRO {zero}{''.join(f', {value}' for value in more.values())}: next "
        f"{len(goes_on)} losses within {error:.1e}",
        flush=True,
    )
    return is_good


def train(package, ranks, stages, zero, **more):
    _, environment = package
    options = {"stages": stages, "zero": zero, "steps": STEPS, **more}
    return run("train_pipeline.py", options, ranks=ranks, timeout=300, env=environment)["losses"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    package = parser.parse_args().build.resolve() / "python"
    if not package.is_dir():
        sys.exit(f"{package} is not there; build it by `scripts/build.sh release`")
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    ours, deepspeed = ("ours", {"PYTHONPATH": str(package)}), ("DeepSpeed", {"PYTHONPATH": ""})
    results = [run_case(ours, deepspeed, *case) for case in OURS_TO_DEEPSPEED]
    results += [run_case(deepspeed, ours, *case) for case in [*DEEPSPEED_TO_OURS, *UNNAMED_TO_OURS]]
    results += [run_case(deepspeed, ours, (2, 2), (ranks, ranks), 0, optimizer=optimizer) for optimizer in OPTIMIZERS for ranks in (1, 3)]
    results += [run_case(deepspeed, ours, *case, dtype="bf16") for case in BF16_TO_OURS]
    results += [run_case(deepspeed, ours, *case, dtype="bf16", sums="fp32") for case in SUMS_TO_OURS]
    results += [run_case(ours, deepspeed, *case, dtype="bf16", sums="fp32") for case in SUMS_TO_DEEPSPEED]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
