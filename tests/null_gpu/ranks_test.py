"""Ranks on null GPUs over c10d's own NCCL backend, by both doors: ranks_test.py GPT2 PYTHON [unittest's words].

GPT2 is the example's program; PYTHON, or -, is an interpreter with torch, to which PYTHONPATH shows the package. Each run trains a few
steps and ends: all ranks with 0, every communicator by NCCL's finalize and destroy, none aborted, and no launch refused.
"""

import concurrent.futures
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).parent
GPT2, PYTHON = sys.argv[1], sys.argv[2]
LIMIT = 120  # seconds, which a run on a busy machine does not take
SIZES = ["--layers", "4", "--heads", "2", "--width", "32", "--context", "16", "--steps", "3"]
BF16 = {"bf16": {"enabled": True}}
HOST = {"device": "cpu", "pin_memory": True}


def zero(stage, **keys):
    return {"zero_optimization": {"stage": stage, **keys}, **BF16}


def optimizer(name, **keys):
    return {"optimizer": {"type": name, "params": {"lr": 1e-3, **keys}}, "gradient_clipping": 0.0, **BF16}


def schedule(name, **keys):
    return {"pipeline": {"schedule": name, **keys}, **BF16}


# Name: ranks, what differs in the config, arguments of the program.
CASES = {
    **{f"stage {stage}": (2, zero(stage), []) for stage in (0, 1, 2, 3)},
    "fp16": (2, {"zero_optimization": {"stage": 2}, "fp16": {"enabled": True}}, []),
    "stage 2 with its optimizer on the host": (2, zero(2, offload_optimizer=HOST), []),
    "stage 3 on the host": (2, zero(3, offload_optimizer=HOST, offload_param=HOST), []),
    "stage 3 on disk": (2, zero(3, offload_optimizer={"device": "nvme", "nvme_path": "{folder}"}), []),
    "MiCS": (4, zero(3, mics_shard_size=2), []),
    "ZeRO++": (4, zero(3, zero_hpz_partition_size=2, zero_quantized_weights=True, zero_quantized_gradients=True), []),
    "1-bit Adam": (2, optimizer("OneBitAdam", freeze_step=1), []),
    "0/1 Adam": (2, optimizer("ZeroOneAdam"), []),
    "1-bit LAMB": (4, optimizer("OneBitLamb", freeze_step=1), []),
    "captured": (2, {**zero(2), "cuda_graphs": {"enabled": True, "warmup_steps": 1}}, []),
    "2 stages": (2, BF16, ["--pipeline_stages", "2"]),
    "4 stages": (4, zero(1), ["--pipeline_stages", "4"]),
    "2 stages of 2 ranks": (4, zero(1), ["--pipeline_stages", "2"]),
    "2 stages, interleaved": (2, schedule("interleaved", model_chunks=2), ["--pipeline_stages", "2", "--model_chunks", "2"]),
    "3 stages, interleaved": (3, schedule("interleaved", model_chunks=2), ["--pipeline_stages", "3", "--model_chunks", "2"]),
    "2 stages, zero bubble": (2, schedule("zero_bubble"), ["--pipeline_stages", "2"]),
    "4 stages, zero bubble": (4, schedule("zero_bubble"), ["--pipeline_stages", "4"]),
}  # fmt: skip


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Ranks:
    """Ranks of a program, each on a device of its own."""

    def __init__(self, command, ranks, folder, **variables):
        port = str(free_port())
        self.processes, self.logs = [], []
        for rank in range(ranks):
            log = open(os.path.join(folder, f"rank{rank}.log"), "w+", encoding="utf-8", errors="replace")
            of_rank = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_PORT": port}
            env = {**os.environ, **{name: str(value) for name, value in of_rank.items()}, "MASTER_ADDR": "127.0.0.1",
                   "NULL_NCCL_LOG": "1", "NULL_NCCL_FOLDER": folder, **variables}  # fmt: skip
            self.logs.append(log)
            self.processes.append(subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT, cwd=folder))

    def finish(self):
        """Returns the exit status and the output of each rank."""
        ended = []
        for process, log in zip(self.processes, self.logs):
            try:
                process.wait(LIMIT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            log.seek(0)
            ended.append((process.returncode, log.read()))
            log.close()
        return ended


def complaint(ended):
    """Returns what was wrong with ranks that were to end well."""
    for rank, (status, output) in enumerate(ended):
        wrong = [line for line in output.splitlines() if "abort of communicator" in line or "[null gpu]" in line or "in vain" in line]
        if status or wrong or "group with size 0" in output.lower():
            return f"rank {rank} ended with {status}: {wrong}\n{output[-3000:]}"
        if len(ended) > 1 and output.count("finalize of communicator") == 0:
            return f"rank {rank} has finished no communicator\n{output[-3000:]}"
    return ""


def train(name):
    ranks, patch, arguments = CASES[name]
    with tempfile.TemporaryDirectory() as folder:
        config = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4, "gradient_clipping": 1.0,
                  "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, **patch}  # fmt: skip
        path = pathlib.Path(folder, "config.json")
        path.write_text(json.dumps(config).replace("{folder}", folder))
        text = pathlib.Path(folder, "text.txt")
        text.write_text((HERE.parents[1] / "ARCHITECTURE.md").read_text(encoding="utf-8")[:8000], encoding="utf-8")
        command = [GPT2, "--deepspeed_config", str(path), "--data", str(text), *SIZES, *arguments]
        return complaint(Ranks(command, ranks, folder).finish())


class Training(unittest.TestCase):
    def test_every_case_trains_and_ends_well(self):
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for name, wrong in zip(CASES, pool.map(train, CASES)):
                with self.subTest(name):
                    self.assertFalse(wrong, wrong)


def ranks_below(process):
    """Returns the ranks among a process's descendants: (process, rank)."""
    folder = pathlib.Path(f"/proc/{process}")
    variables = dict(word.split("=", 1) for word in (folder / "environ").read_text().split("\0") if "=" in word)
    found = [(process, int(variables["RANK"]))] if "RANK" in variables else []
    for child in (folder / f"task/{process}/children").read_text().split():
        found += ranks_below(int(child))
    return found


class Failing(unittest.TestCase):
    """Ranks under the launcher, of which one is killed or stopped while its device works."""

    def start(self, folder):
        config = pathlib.Path(folder, "config.json")
        config.write_text(json.dumps({"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW"}, **zero(2)}))
        text = pathlib.Path(folder, "text.txt")
        text.write_text((HERE.parents[1] / "ARCHITECTURE.md").read_text(encoding="utf-8")[:8000], encoding="utf-8")
        self.log = pathlib.Path(folder, "log")
        launcher = pathlib.Path(os.environ["DEEPSPEED_PROGRAMS"], "deepspeed")
        program = [GPT2, "--deepspeed_config", str(config), "--data", str(text), *SIZES[:-1], "1000000", "--log_every", "1"]
        with open(self.log, "w", encoding="utf-8") as log:
            job = subprocess.Popen([launcher, "--num_gpus", "2", "--no_python", *program], stdout=log, stderr=subprocess.STDOUT,
                                   cwd=folder, env={**os.environ, "NULL_NCCL_FOLDER": folder})  # fmt: skip
        self.addCleanup(job.wait)
        self.addCleanup(job.terminate)
        self.wait_for(job, self.steps(3))
        return job, sorted((rank, process) for process, rank in ranks_below(job.pid))

    def steps(self, more):
        """Returns whether the ranks have trained so many steps from here on, as a function."""
        wanted = (self.log.read_text().count("\nstep ") if self.log.exists() else 0) + more
        return lambda: self.log.read_text().count("\nstep ") >= wanted

    def wait_for(self, job, is_so):
        end = time.monotonic() + LIMIT
        while not is_so():
            self.assertTrue(time.monotonic() < end and job.poll() is None, self.log.read_text()[-3000:])
            time.sleep(0.1)

    def test_a_job_ends_where_a_rank_is_killed(self):
        with tempfile.TemporaryDirectory() as folder:
            job, ranks = self.start(folder)
            os.kill(ranks[1][1], signal.SIGKILL)
            self.assertNotEqual(job.wait(LIMIT), 0)
            self.assertIn("rank 1", self.log.read_text())
            for _, process in ranks:
                self.assertFalse(pathlib.Path(f"/proc/{process}").exists())

    def test_a_job_goes_on_where_a_rank_was_stopped(self):
        with tempfile.TemporaryDirectory() as folder:
            job, ranks = self.start(folder)
            os.kill(ranks[1][1], signal.SIGSTOP)
            time.sleep(3)
            os.kill(ranks[1][1], signal.SIGCONT)
            self.wait_for(job, self.steps(5))


@unittest.skipIf(PYTHON == "-", "there is no Python package")
class Python(unittest.TestCase):
    def run_program(self, ranks, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            return Ranks([PYTHON, str(HERE / "engines.py"), *arguments], ranks, folder).finish()

    def test_engines_are_made_trained_and_dropped(self):
        for what in ("engines", "pipelines"):
            with self.subTest(what):
                wrong = complaint(self.run_program(2, what))
                self.assertFalse(wrong, wrong)

    def test_a_script_that_ends_by_an_error_does_not_wait_for_its_device(self):
        with tempfile.TemporaryDirectory() as folder:
            ranks = Ranks([PYTHON, str(HERE / "engines.py"), "failing"], 2, folder)
            try:
                status = ranks.processes[1].wait(LIMIT)
            finally:
                for process in ranks.processes:
                    process.kill()
            (_, _), (_, output) = ranks.finish()
            self.assertEqual(status, 1, output[-3000:])
            self.assertIn("ValueError: the data of rank 1 are spoiled", output)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
