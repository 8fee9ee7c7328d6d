"""Trainings of one small model in this library and in DeepSpeed, as commands, for the scripts that compare them."""

import json
import math
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE.parent / "golden"
sys.path[:0] = [str(GOLDEN / "deepspeed_training"), str(GOLDEN / "deepspeed_checkpoints")]
os.environ.setdefault("DS_ACCELERATOR", "cpu")

from launch_ranks import launch_command, launch_ranks  # noqa: E402

GLOBAL_BATCH = 12
CLIENT_STATE = {"note": "moved", "epoch": 2}


def last_json(output):
    return json.loads(output.strip().splitlines()[-1])


def relative_error(found, expected):
    """The largest of two lists of losses; infinite where one of them is not finite."""
    errors = [abs(f - e) / abs(e) for f, e in zip(found, expected, strict=True)]
    return max(errors) if all(map(math.isfinite, errors)) else math.inf


class Ours:
    """A task: config, variant, ranks, and as wanted load, resave, save (folders), steps, steps_after."""

    name = "ours"

    def __init__(self, build):
        self.program = build / "tests" / "train_small_net"
        if not self.program.exists():
            sys.exit(f"{self.program} is not there; build it by `scripts/build.sh {build.name} train_small_net`")
        self.tools = build / "bin"

    def train(self, config, ranks, **task):
        command = [self.program, "--config", json.dumps(dict(config, log_level="warning")), "--micro_batch", GLOBAL_BATCH // ranks]
        for key, value in task.items():
            command += [f"--{key}", value] if value is not None else []
        return last_json(launch_command(command, ranks))

    def convert_to_universal(self, folder, output):
        self.run_tool("ds_to_universal", "--input_folder", folder, "--output_folder", output)

    def convert_to_fp32(self, folder, output):
        self.run_tool("zero_to_fp32", folder, output)

    def run_tool(self, name, *arguments):
        subprocess.run([self.tools / name, *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


class DeepSpeed:
    """The same in one process a rank for many tasks, since most of the time goes into starting it."""

    name = "DeepSpeed"

    def train(self, config, ranks, **task):
        losses = self.train_all([dict(task, config=config)], ranks)[0]
        if isinstance(losses, str):
            raise RuntimeError(losses)
        return losses

    def train_all(self, tasks, ranks):
        """Of each task the losses, or the text of its error."""
        text = json.dumps(
            [{key: str(value) if isinstance(value, pathlib.Path) else value for key, value in task.items()} for task in tasks]
        )
        return last_json(launch_ranks(__file__, [text], ranks))

    def convert_to_universal(self, folder, output):
        subprocess.run(
            [
                sys.executable,
                "-m",
                "deepspeed.checkpoint.ds_to_universal",
                "--input_folder",
                folder,
                "--output_folder",
                output,
                "--inject_missing_state",
                "--num_extract_workers",
                "1",
                "--num_merge_workers",
                "1",
            ],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


def train_as_rank(config, variant="golden", all_parameters=False, load=None, resave=None, save=None, steps=3, steps_after=0):
    import small_training as small
    import torch

    micro_batch = GLOBAL_BATCH // torch.distributed.get_world_size()
    engine = small.make_engine(config, variant, all_parameters)
    if load:
        path, _ = engine.load_checkpoint(load)
        assert path, "nothing was loaded"
    if resave:
        engine.save_checkpoint(resave)
    losses = small.train(engine, steps, micro_batch)
    if save:
        engine.save_checkpoint(save, client_state=CLIENT_STATE)
    losses += small.train(engine, steps_after, micro_batch)
    engine.destroy()
    return small.of_all_ranks(losses).mean(0).tolist()


def run_tasks(tasks):
    import torch

    import deepspeed

    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo")
    results = []
    for task in tasks:
        try:
            results.append(train_as_rank(**task))
        except Exception as error:  # of all ranks: they do the same
            results.append(f"{type(error).__name__}: {error}")
    if torch.distributed.get_rank() == 0:
        print(json.dumps(results), flush=True)


if __name__ == "__main__":
    run_tasks(json.loads(sys.argv[1]))
