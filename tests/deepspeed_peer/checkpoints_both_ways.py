"""Plain checkpoints both ways, where DeepSpeed is installed: stages 0 to 3 x fp32, bf16, fp16 x 1, 2 ranks x a plain model,
one with frozen parameters, with a shared one, with several parameter groups. A run that one side began is saved, goes on
there, and goes on from the save on the other side:

- what the other side has loaded, saved again at once, is what was saved: weights, fp32 masters, moments, loss scaler,
  counters, schedule and hyperparameters, bit by bit;
- the next losses are those of the run that never stopped;
- at stages 1 to 3 both sides' zero_to_fp32 make the same tensors of the save;
- with gradient sums in fp32 (bf16-sums, at stage 1) DeepSpeed trains with its BF16_Optimizer, whose files have another form, which
  its own zero_to_fp32 refuses;
- our files load in torch with weights_only=True, and have the keys, order, dtypes and shapes of DeepSpeed's.

    python checkpoints_both_ways.py BUILD_FOLDER [--stage 0 1] [--dtype bf16] [--ranks 2] [--variant frozen] ...

One line a case; the exit code is 0 where all agree.
"""

import argparse
import collections
import contextlib
import io
import itertools
import pathlib
import sys
import tempfile

import checkpoint_content as content
import small_training as small
from peers import GLOBAL_BATCH, DeepSpeed, Ours, relative_error

STEPS_BEFORE, STEPS_AFTER = 5, 3
# Of losses, relative. Sums of other orders; in 16 bits also weights that round to a neighbour.
TOLERANCE = {"fp32": 2e-6, "bf16": 4e-3, "bf16-sums": 4e-3, "fp16": 1e-3}
STAGES, DTYPES, RANKS = (0, 1, 2, 3), ("fp32", "bf16", "bf16-sums", "fp16"), (1, 2)
MODELS = ("plain", "frozen", "shared", "groups")
DIRECTIONS = ("ours-to-deepspeed", "deepspeed-to-ours")
Case = collections.namedtuple("Case", "stage dtype ranks variant")


def config_of(case):
    dtype, _, sums = case.dtype.partition("-")
    config = small.ds_config(case.stage, dtype, GLOBAL_BATCH // case.ranks)
    return dict(config, data_types={"grad_accum_dtype": "fp32"}) if sums else config


def folder_of(root, case, direction, part):
    return root / direction / "-".join(map(str, case)) / part


def first_half(root, direction, case):
    return {
        "config": config_of(case),
        "variant": case.variant,
        "steps": STEPS_BEFORE,
        "steps_after": STEPS_AFTER,
        "save": folder_of(root, case, direction, "saved"),
    }


def second_half(root, direction, case):
    return {
        "config": config_of(case),
        "variant": case.variant,
        "steps": STEPS_AFTER,
        "load": folder_of(root, case, direction, "saved"),
        "resave": folder_of(root, case, direction, "loaded"),
    }


def train_each(ours, tasks, ranks):
    results = []
    for task in tasks:
        try:
            results.append(ours.train(ranks=ranks, **task))
        except RuntimeError as error:
            results.append(str(error))
    return results


def train_both(ours, deepspeed, root, direction, cases, ranks):
    """Of each case the losses after the save, on the side that saved and on the other one."""
    from_ours = direction == "ours-to-deepspeed"
    first = [first_half(root, direction, case) for case in cases]
    second = [second_half(root, direction, case) for case in cases]
    if from_ours:
        return train_each(ours, first, ranks), deepspeed.train_all(second, ranks)
    # DeepSpeed gets all parameters, frozen ones too, as where a program names none.
    stayed = deepspeed.train_all([dict(task, all_parameters=True) for task in first], ranks)
    return stayed, train_each(ours, second, ranks)


def groups_of(case):
    variant = small.VARIANTS[case.variant]
    model = small.SmallNet(variant["frozen"], variant["tied"])
    names = {parameter: name for name, parameter in model.named_parameters()}
    if variant["groups"]:
        return [[names[p] for p in group["params"]] for group in small.parameter_groups(model)]
    return [[name for p, name in names.items() if p.requires_grad]]


def fp32_differences(ours, folder, case):
    """Names that differ between what both sides' converters make of a save."""
    import torch

    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        theirs = get_fp32_state_dict_from_zero_checkpoint(str(folder))
    ours.convert_to_fp32(folder, folder / "fp32.bin")
    found = torch.load(folder / "fp32.bin", weights_only=True)
    lost = set(found) - set(theirs)
    by_defect = {"frozen.weight", "frozen.bias"} if case.stage == 1 and case.variant == "frozen" else set()
    different = sorted((lost - by_defect) | (set(theirs) - set(found)))
    return different + [name for name in theirs if name in found and not torch.equal(theirs[name].float(), found[name].float())]


def unsafe_files(folder):
    """Files that torch does not load without running code; DeepSpeed's own classes are named as safe."""
    import torch

    from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler, LossScaler
    from deepspeed.runtime.zero.config import ZeroStageEnum
    from deepspeed.utils.tensor_fragment import fragment_address

    unsafe = []
    for path in [*content.model_files(folder), *content.optimizer_files(folder)]:
        classes = [] if path in content.model_files(folder) else [DynamicLossScaler, LossScaler, ZeroStageEnum, fragment_address]
        try:
            with torch.serialization.safe_globals(classes):
                torch.load(path, weights_only=True)
        except Exception as error:
            unsafe.append(f"{path.name}: {error}")
    return unsafe


def check_case(ours, root, direction, case, stayed, moved):
    """(whether all agree, what was found)"""
    if isinstance(stayed, str) or isinstance(moved, str):
        return False, f"failed: {stayed if isinstance(stayed, str) else moved}"
    saved, loaded = (folder_of(root, case, direction, part) for part in ("saved", "loaded"))
    tag = f"global_step{STEPS_BEFORE}"
    error = relative_error(moved, stayed[STEPS_BEFORE:])
    before, after = (content.read_run(folder / tag, groups_of(case)) for folder in (saved, loaded))
    if case.dtype == "bf16-sums":  # one side alone notes what bf16 does not need
        before, after = ({key: value for key, value in run.items() if key not in ("scaler", "overflow")} for run in (before, after))
    wrong = content.differences(before, after)
    notes = [
        f"next {STEPS_AFTER} losses within {error:.1e}",
        f"state differs: {' '.join(wrong)}" if wrong else f"{len(before)} states equal",
    ]
    if case.dtype == "fp16":
        notes.append(f"scale {before['scaler']['cur_scale']:g}, {before['skipped_steps']} skipped")
    is_refused = case.dtype == "bf16-sums" and direction == "deepspeed-to-ours"
    if case.stage > 0 and not is_refused:
        different = fp32_differences(ours, saved, case)
        wrong += different
        notes.append(f"zero_to_fp32 differs: {' '.join(different)}" if different else "zero_to_fp32 equal")
        if case.stage == 1 and case.variant == "frozen" and direction == "deepspeed-to-ours":
            notes[-1] += " (but for the frozen weights, which DeepSpeed's loses at stage 1)"
    if direction == "ours-to-deepspeed":
        unsafe = unsafe_files(saved / tag)
        wrong += unsafe
        notes.append(f"not loaded: {' '.join(unsafe)}" if unsafe else "loaded with weights_only")
    return error <= TOLERANCE[case.dtype] and not wrong, ", ".join(notes)


def report(good, case, what, found):
    print(f"{'ok  ' if good else 'FAIL'} stage {case.stage} {case.dtype} x{case.ranks} {case.variant:6} {what}: {found}", flush=True)
    return good


def check_forms(root, case):
    tag = f"global_step{STEPS_BEFORE}"
    frozen = case.variant == "frozen"
    forms = [content.form_of(folder_of(root, case, direction, "saved") / tag, case.stage, frozen) for direction in DIRECTIONS]
    found = content.form_differences(*forms)
    return report(not found, case, "files as DeepSpeed's", "; ".join(found) or "equal keys, order, dtypes and shapes")


def run_matrix(options, root):
    ours, deepspeed = Ours(options.build.resolve()), DeepSpeed()
    results = []
    failed = set()
    for ranks in options.ranks:
        cases = [
            Case(stage, dtype, ranks, variant)
            for stage, dtype, variant in itertools.product(options.stage, options.dtype, options.variant)
            if dtype != "bf16-sums" or stage == 1
        ]
        for direction in options.direction:
            stayed, moved = train_both(ours, deepspeed, root, direction, cases, ranks)
            for case, own, other in zip(cases, stayed, moved, strict=True):
                good, found = check_case(ours, root, direction, case, own, other)
                results.append(report(good, case, direction, found))
                if isinstance(own, str):
                    failed.add(case)
        if len(options.direction) == len(DIRECTIONS):
            results += [check_forms(root, case) for case in cases if case not in failed and case.dtype != "bf16-sums"]
    print(f"{sum(results)} of {len(results)} agree", flush=True)
    return all(results)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--stage", type=int, nargs="+", choices=STAGES, default=STAGES)
    parser.add_argument("--dtype", nargs="+", choices=DTYPES, default=DTYPES)
    parser.add_argument("--ranks", type=int, nargs="+", choices=RANKS, default=RANKS)
    parser.add_argument("--variant", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--direction", nargs="+", choices=DIRECTIONS, default=DIRECTIONS)
    parser.add_argument("--folder", type=pathlib.Path, help="keeps the checkpoints there")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        root = options.folder or pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        good = run_matrix(options, root)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
