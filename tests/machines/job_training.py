"""Training over several machines has the losses of one machine, and goes on from its newest checkpoint."""

import json

from jobs import BUILD, PYTHON, JobTest, installed_runners
from machines import wait_until


class TrainingTest(JobTest):
    # --- training ---

    def train(self, runner, *more, hosts=(), program="", **options):
        """Trains a small GPT-2 of the example; returns [loss of each step], by step."""
        name = f"losses_{runner or 'one machine'}"
        config = {
            "train_micro_batch_size_per_gpu": 2,
            "optimizer": {"type": "AdamW", "params": {"lr": 3e-3}},
            "zero_optimization": {"stage": 2},
        }
        config = options.pop("config", config)
        (self.folder / "config.json").write_text(json.dumps(config))
        (self.folder / "text").write_text("The ranks of a job meet, count, and go on together.\n" * 200)
        words = ["--deepspeed_config", self.folder / "config.json", "--data", self.folder / "text", "--layers", 1, "--heads", 2]
        words += ["--width", 16, "--context", 16, "--dropout", 0, "--loss_log", self.folder / name, *more]
        program = program or str(BUILD / "examples" / "gpt2")
        flags = [*options.pop("flags", ()), *([] if runner else ["--num_procs", "4"])]
        self.start(runner, *words, hosts=hosts, program=[program], flags=flags, **options)
        return self.folder / name

    @staticmethod
    def losses(path):
        return {int(step): float(loss) for step, loss in (line.split() for line in path.read_text().splitlines())}

    def test_trains_with_the_losses_of_one_machine(self):
        seen = {}
        for runner in ["", *installed_runners()]:
            path = self.train(runner, "--steps", 8)
            self.assertEqual(self.end(), 0, f"{runner}: {self.said()}")
            seen[runner] = self.losses(path)
            self.assertEqual(len(seen[runner]), 8)
            self.expect_nothing_left()
        several = [found for runner, found in seen.items() if runner]
        self.expect_close(several[0], seen[""])
        for runner, found in seen.items():
            self.assertIn(found, [seen[""], several[0]], f"{runner}: other bits")

    def test_trains_in_python_with_the_losses_of_one_machine(self):
        if PYTHON == "-":
            self.skipTest("this build has no Python package")
        door = [PYTHON, "-m", "deepspeed.launcher.runner"]
        alone = self.losses_in_python("", door, flags=["--num_gpus", "4"])
        for runner in installed_runners():
            self.expect_close(self.losses_in_python(runner, door), alone)

    def test_continues_an_elastic_training_from_its_newest_checkpoint(self):
        hosts = ["worker-0 slots=2", "worker-1 slots=2", "worker-2 slots=2"]
        saved = self.folder / "saved"
        config = {
            "elasticity": {"enabled": True, "max_train_batch_size": 24, "micro_batch_sizes": [1, 2], "version": 0.1},
            "optimizer": {"type": "AdamW", "params": {"lr": 3e-3}},
            "zero_optimization": {"stage": 2},
        }
        program = self.folder / "train"
        program.write_text(
            f"""#!/bin/sh
[ ! -e {saved}/latest ] || set -- "$@" --resume {saved}
exec {BUILD}/examples/gpt2 "$@"
"""
        )
        program.chmod(0o755)
        flags = ["--elastic_training", "--min_elastic_nodes", "2"]
        words = ["--steps", 60, "--save_every", 4]
        path = self.train("ssh", *words, "--save_dir", saved, hosts=hosts, program=str(program), flags=flags, config=config)

        def has_saved():
            self.assertIsNone(self.job.poll(), self.said())
            return (saved / "latest").exists() and (saved / "latest").read_text().strip() != "global_step4"

        wait_until(has_saved, "checkpoints")
        self.machines[1].set_link("down")
        self.assertEqual(self.end(), 0, self.said())
        self.machines[1].set_link("up")
        self.expect_nothing_left()
        (line,) = [line for line in self.said().splitlines() if "restart 1 goes on from tag" in line]
        tag = line.split("from tag ")[1].split()[0]
        self.assertIn(f"at step {tag.removeprefix('global_step')} with 4 ranks", line)
        found = self.losses(path)
        self.assertEqual(sorted(found), list(range(int(tag.removeprefix("global_step")) + 1, 61)))
        # By hand, on as many machines, from that checkpoint.
        words = ["--steps", 60, "--resume", saved, "--resume_tag", tag]
        path = self.train("ssh", *words, hosts=["worker-0 slots=2", "worker-2 slots=2"], config=config)
        self.assertEqual(self.end(), 0, self.said())
        self.assertEqual(self.losses(path), found)
