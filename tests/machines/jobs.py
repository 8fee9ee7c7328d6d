"""Jobs on the machines of machines.py, and what tests ask of them."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import unittest

import machines
from machines import wait_until

BUILD = pathlib.Path(sys.argv[1]).resolve()
BINARIES = BUILD / "bin"
PYTHON = sys.argv[2]  # an interpreter with torch, or -
RANKS = pathlib.Path(__file__).with_name("ranks.py")
SECRET = "hush 1'2\"3 $(touch $MARK) `touch $MARK` \\ %h%n"
NAMES = ("rank0.0", "rank1.0", "rank2.0", "rank3.0")


def has(*programs):
    return all(map(shutil.which, programs))


def slurm_is_there():
    return has("srun", "slurmctld", "slurmd", "munged")


def is_open_mpi(mpirun):
    return mpirun and "Open MPI" in subprocess.run([mpirun, "--version"], capture_output=True, text=True).stdout


def mpirun_of(kind):
    """Returns the path of the mpirun of that kind; None where it is not installed."""
    for name in (f"mpirun.{kind}", "mpirun"):
        path = shutil.which(name)
        if path and (is_open_mpi(path) == (kind == "openmpi")):
            return path
    return None


RUNNERS = {
    "ssh": "",
    "pdsh": "" if has("pdsh") else "pdsh is not installed",
    "openmpi": "" if mpirun_of("openmpi") and has("ompi_info") else "Open MPI is not installed",
    "mpich": "" if mpirun_of("mpich") else "MPICH is not installed",
    "slurm": "" if slurm_is_there() else "Slurm is not installed",
}


def installed_runners():
    return [name for name, why_not in RUNNERS.items() if not why_not]


class JobTest(unittest.TestCase):
    """Starts jobs on three machines, which all tests share."""

    @classmethod
    def setUpClass(cls):
        if hasattr(JobTest, "machines"):
            return
        JobTest.root, JobTest.machines = machines.make(3)
        if not RUNNERS["slurm"]:
            try:
                machines.start_slurm(cls.root, cls.machines)
            except (subprocess.CalledProcessError, AssertionError) as error:
                said = "".join(path.read_text()[-600:] for path in sorted((cls.root / "slurm").glob("*.log")))
                RUNNERS["slurm"] = f"Slurm does not start here: {error} {getattr(error, 'stderr', '')} {said}"

    def setUp(self):
        self.folder = self.root / self.id().rpartition(".")[2]
        self.work = self.folder / "work $(touch $MARK) 'x'"
        self.out = self.folder / "out"
        self.work.mkdir(parents=True)
        self.out.mkdir()
        (self.folder / "home").mkdir()
        self.mark = self.folder / "mark"
        (self.folder / "home" / ".deepspeed_env").write_text(f"SECRET={SECRET}\n")
        self.job = None

    def tearDown(self):
        self.end_everything()

    def end_everything(self):
        for machine in self.machines:
            machine.set_link("up")
            machine.send(signal.SIGCONT)
        if self.job is not None and self.job.poll() is None:
            self.job.kill()
            self.job.wait()
        for word in ("ranks.py", "/ds_node"):
            machines.end_all(word)

    # --- jobs ---

    def hostfile(self, *lines):
        path = self.folder / "hosts"
        path.write_text("\n".join(lines or ["worker-0 slots=2", "worker-1 slots=2"]) + "\n")
        return str(path)

    def start(self, runner, *words, flags=(), hosts=(), kind="end", door=(), is_whole=False, program=(), **variables):
        """Starts a job. door: what starts it, in place of `deepspeed`; is_whole: it takes the program alone, without flags."""
        folder = self.folder / f"bin_of_{runner}"
        folder.mkdir(exist_ok=True)
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("DEEPSPEED", "DS_"))}
        environment.update(HOME=str(self.folder / "home"), MARK=str(self.mark), CUDA_VISIBLE_DEVICES="", PYTHON=sys.executable)
        environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1")
        if runner in ("openmpi", "mpich") and not (folder / "mpirun").exists():
            # Not a link: MPICH's looks for its other programs beside itself.
            (folder / "mpirun").write_text(f'#!/bin/sh\nexec {mpirun_of(runner)} "$@"\n')
            (folder / "mpirun").chmod(0o755)
        environment.update(variables)
        environment["PATH"] = f"{folder}:{variables.get('PATH', '')}:{os.environ['PATH']}"
        command = [*(door or [str(BINARIES / "deepspeed")])]
        if not is_whole:
            command += ["--no_local_rank", *flags]
            command += ["--hostfile", self.hostfile(*hosts), "--launcher", runner] if runner else []
            command += ["--"]
        command += [*(program or [str(RANKS), str(self.out), kind]), *map(str, words)]
        self.errors = self.folder / "errors"
        self.output = self.folder / "output"
        with open(self.errors, "w") as errors, open(self.output, "w") as output:
            self.job = subprocess.Popen(
                command, cwd=self.work, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True
            )

    def end(self, patience=180):
        try:
            return self.job.wait(patience)
        except subprocess.TimeoutExpired:
            self.fail(f"the launcher does not end:\n{self.errors.read_text()}")

    def run_job(self, runner, *words, **options):
        self.start(runner, *words, **options)
        return self.end()

    def said(self):
        return self.errors.read_text()

    def wait_for_ranks(self, names=NAMES):
        def are_there():
            if self.job.poll() is not None:
                self.fail(f"the launcher has ended with {self.job.returncode}:\n{self.said()}")
            return all((self.out / name).exists() for name in names)

        wait_until(are_there, "ranks")

    def found(self, name):
        return json.loads((self.out / name).read_text())

    def require(self, runner):
        if RUNNERS[runner]:
            self.skipTest(RUNNERS[runner])

    def left_beside_the_launcher(self):
        """Returns the programs of its job that still run on its machine, as ssh and pdsh, by the variable that they have from it.

        MPI and Slurm give the variable to the other machines too: what runs there has its own moment to end (expect_nothing_left).
        """
        home = f"HOME={self.folder / 'home'}".encode()
        here = machines.network("self")
        found = [pid for pid in machines.all_processes() if home in machines.variables(pid) and machines.network(pid) == here]
        return [machines.command_line(pid) for pid in found if machines.is_alive(pid)]

    def expect_nothing_left(self, on=None):
        began = time.monotonic()
        for machine in self.machines if on is None else on:
            wait_until(lambda: not machine.processes("ranks.py") and not machine.processes("/ds_node"), f"processes of {machine.name} end")
        return time.monotonic() - began

    def reset(self):
        for path in self.out.iterdir():
            path.unlink()

    # --- training ---

    def losses_in_python(self, runner, door, **options):
        """Trains a small net (train.py) by what `door` starts; returns {(rank, step): loss}."""
        self.reset()
        environment = {"PYTHON": PYTHON, "PYTHONPATH": str(BUILD / "python"), "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
        program = [str(pathlib.Path(__file__).with_name("train.py"))]
        self.start(runner, self.out, door=door, program=program, **environment, **options)
        self.assertEqual(self.end(), 0, f"{runner}: {self.said()}")
        self.expect_nothing_left()
        return {(rank, step): loss for rank in range(4) for step, loss in enumerate(self.found(f"losses.{rank}"))}

    def expect_close(self, ours, expected):
        self.assertEqual(ours.keys(), expected.keys())
        for step, loss in expected.items():
            # Sums of four ranks have another order on two machines.
            self.assertAlmostEqual(ours[step], loss, delta=1e-5 * abs(loss), msg=f"step {step}")
