"""The launcher over three machines (machines.py), through each runner that is installed: machines_test.py BINARIES [unittest's words]."""

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

BINARIES = pathlib.Path(sys.argv.pop(1)).resolve()
RANKS = pathlib.Path(__file__).with_name("ranks.py")
SECRET = "hush 1'2\"3 $(touch $MARK) `touch $MARK` \\ %h%n"
# Every character that means something to a shell, to ssh, pdsh, mpirun or srun.
WORDS = [
    "plain",
    "",
    " ",
    "a  b",
    "\ttab\t",
    "two\nlines",
    "it's",
    'say "x"',
    "'",
    '"',
    "$HOME",
    "${HOME}",
    "$(touch $MARK)",
    "`touch $MARK`",
]
WORDS += [
    "a\\b\\\\",
    "\\",
    "%h %n %% 5%",
    "*",
    "?",
    "[a-z]",
    "~",
    "~root",
    "{a,b}",
    "; touch $MARK",
    "&& touch $MARK",
    "| cat",
    "> $MARK",
    "< x",
]
WORDS += ["#x", "!x", "!!", "-w", "--", "--local_rank", "-x A=b", ":", "a=b", "\u00e9\u4e16", "(x)", "\x01\x7f", "last"]
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


class MachinesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root, cls.machines = machines.make(3)
        if not RUNNERS["slurm"]:
            try:
                start_slurm(cls.root, cls.machines)
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

    def start(self, runner, *words, flags=(), hosts=(), kind="end", **variables):
        folder = self.folder / f"bin_of_{runner}"
        folder.mkdir(exist_ok=True)
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("DEEPSPEED", "DS_"))}
        environment.update(HOME=str(self.folder / "home"), MARK=str(self.mark), CUDA_VISIBLE_DEVICES="", PYTHON=sys.executable)
        environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1")
        if runner in ("openmpi", "mpich") and not (folder / "mpirun").exists():
            # Not a link: MPICH's looks for its other programs beside itself.
            (folder / "mpirun").write_text(f'#!/bin/sh\nexec {mpirun_of(runner)} "$@"\n')
            (folder / "mpirun").chmod(0o755)
        environment["PATH"] = f"{folder}:{environment['PATH']}"
        environment.update(variables)
        command = [str(BINARIES / "deepspeed"), "--hostfile", self.hostfile(*hosts), "--launcher", runner, "--no_local_rank", *flags]
        command += ["--", str(RANKS), str(self.out), kind, *words]
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

    def expect_nothing_left(self, on=None):
        began = time.monotonic()
        for machine in self.machines if on is None else on:
            wait_until(lambda: not machine.processes("ranks.py") and not machine.processes("/ds_node"), f"processes of {machine.name} end")
        return time.monotonic() - began

    # --- what arrives ---

    def check_arguments(self, runner):
        self.require(runner)
        code = self.run_job(runner, *WORDS)
        self.assertEqual(code, 0, self.said())
        self.assertEqual(len(WORDS), 41)
        for rank, name in enumerate(NAMES):
            found = self.found(name)
            self.assertEqual(found["words"], WORDS)
            self.assertEqual(found["SECRET"], SECRET)
            self.assertFalse(found["secret_is_shown"] or found["job_is_seen"])
            self.assertEqual(found["cwd"], str(self.work))
            place = [found[key] for key in ("WORLD_SIZE", "LOCAL_SIZE", "CROSS_SIZE")]
            self.assertEqual(place, ["4", "2", "2"])
            self.assertEqual(found["host"], f"worker-{rank // 2}")
            self.assertEqual((found["LOCAL_RANK"], found["CROSS_RANK"]), (str(rank % 2), str(rank // 2)))
            self.assertEqual(found["MASTER_ADDR"], "10.77.0.10")
        output = self.output.read_text()
        for rank in range(4):
            self.assertIn(f"output of rank {rank}", output)
        self.assertFalse(self.mark.exists())
        self.assertNotIn("hush", self.said())
        self.assertFalse(list(pathlib.Path("/tmp").glob("deepspeed_job_*")))
        self.expect_nothing_left()

    def test_arguments_by_ssh(self):
        self.check_arguments("ssh")

    def test_arguments_by_pdsh(self):
        self.check_arguments("pdsh")

    def test_arguments_by_openmpi(self):
        self.check_arguments("openmpi")

    def test_arguments_by_mpich(self):
        self.check_arguments("mpich")

    def test_arguments_by_slurm(self):
        self.check_arguments("slurm")

    # --- one death ends the job ---

    def check_failure(self, runner):
        self.require(runner)
        self.start(runner, kind="wait")
        self.wait_for_ranks()
        victim = self.found("rank2.0")["pid"]
        os.kill(victim, signal.SIGKILL)
        self.assertEqual(self.end(), 137, self.said())
        lines = [line for line in self.said().splitlines() if "host worker-1: rank 2" in line]
        self.assertEqual(len(lines), 1, self.said())
        self.assertIn(f"(pid {victim}) was ended by SIGKILL", lines[0])
        self.expect_nothing_left()

    def test_a_killed_rank_by_ssh(self):
        self.check_failure("ssh")

    def test_a_killed_rank_by_pdsh(self):
        self.check_failure("pdsh")

    def test_a_killed_rank_by_openmpi(self):
        self.check_failure("openmpi")

    def test_a_killed_rank_by_mpich(self):
        self.check_failure("mpich")

    def test_a_killed_rank_by_slurm(self):
        self.check_failure("slurm")

    def test_a_rank_that_fails_gives_its_code(self):
        self.assertEqual(self.run_job("ssh", kind="fail"), 7, self.said())
        self.assertIn("host worker-1: rank 3", self.said())
        self.assertIn("ended with exit code 7", self.said())

    def check_lost(self, runner, end_machine, expected, on=None):
        self.require(runner)
        self.start(runner, kind="wait")
        self.wait_for_ranks()
        end_machine(self.machines[1])
        self.assertEqual(self.end(), 1, self.said())
        self.assertIn(f"host worker-1 is lost: {expected}", self.said())
        self.expect_nothing_left(on)

    def test_a_killed_node_program(self):
        for runner in ("ssh", "pdsh"):
            with self.subTest(runner):
                self.check_lost(
                    runner, lambda machine: [os.kill(pid, signal.SIGKILL) for pid in machine.processes("/ds_node")], "its connection ended"
                )
                self.reset()

    def reset(self):
        for path in self.out.iterdir():
            path.unlink()

    def test_a_killed_ssh_session(self):
        def end_session(machine):
            for pid in machine.processes("/ds_node"):
                status = pathlib.Path(f"/proc/{pid}/status").read_text()
                parent = int(next(line.split()[1] for line in status.splitlines() if line.startswith("PPid:")))
                os.kill(parent, signal.SIGKILL)

        self.check_lost("ssh", end_session, "its connection ended")

    def test_a_lost_network(self):
        for runner in ("ssh", "pdsh"):
            with self.subTest(runner):
                self.check_lost(runner, lambda machine: machine.set_link("down"), "nothing was heard from it")
                self.machines[1].set_link("up")
                self.reset()

    def test_a_machine_that_hangs(self):
        self.check_lost("ssh", lambda machine: machine.send(signal.SIGSTOP), "nothing was heard from it", [self.machines[0]])
        # It goes on: what still runs there ends by itself.
        self.machines[1].send(signal.SIGCONT)
        self.expect_nothing_left()

    def test_a_node_program_that_hangs(self):
        def stop(machine):
            for pid in machine.processes("/ds_node"):
                if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == "ds_node":
                    os.kill(pid, signal.SIGSTOP)

        self.start("ssh", kind="wait")
        self.wait_for_ranks()
        stop(self.machines[1])
        self.assertNotEqual(self.end(), 0)
        self.expect_nothing_left()

    def test_a_stopped_rank_is_named(self):
        self.start("ssh", kind="wait")
        self.wait_for_ranks()
        victim = self.found("rank3.0")["pid"]
        os.kill(victim, signal.SIGSTOP)
        wait_until(lambda: f"host worker-1: rank 3 (pid {victim}) was stopped by SIGSTOP" in self.said(), "the line")
        self.job.send_signal(signal.SIGTERM)
        self.assertEqual(self.end(), 143, self.said())
        self.expect_nothing_left()

    # --- ends of the launcher ---

    def check_end_of_launcher(self, runner, number, code):
        self.require(runner)
        self.start(runner, kind="wait")
        self.wait_for_ranks()
        self.job.send_signal(number)
        self.assertEqual(self.end(), code, self.said())
        self.expect_nothing_left()
        self.reset()

    def test_signals_to_the_launcher(self):
        for runner in RUNNERS:
            for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)):
                with self.subTest(f"{runner} {number}"):
                    self.check_end_of_launcher(runner, number, code)

    # --- bad input, before anything starts ---

    def expect_refusal(self, *expected, code=None, **options):
        self.assertNotEqual(self.run_job("ssh", **options), 0, self.said())
        for text in expected:
            self.assertIn(text, self.said())
        self.assertFalse(list(self.out.iterdir()), "something was started")

    def test_an_unreachable_host(self):
        self.expect_refusal("host nowhere cannot be reached by ssh", hosts=["worker-0 slots=1", "nowhere slots=1"])

    def test_an_address_that_no_machine_has(self):
        self.expect_refusal(
            "--master_addr 10.77.0.99 is no address of this machine", "host worker-0", flags=["--master_addr", "10.77.0.99"]
        )

    def test_another_version(self):
        other = self.folder / "other_node"
        other.write_text(
            """#!/bin/sh\nif [ "$(hostname)" = worker-1 ]; then echo '{"t":"hello","version":"0.0.1"}'; cat >/dev/null; else exec """
            + f"{BINARIES}/ds_node"
            + """ "$@"; fi\n"""
        )
        other.chmod(0o755)
        self.expect_refusal("host worker-1: the library there is version 0.0.1", DS_NODE_PROGRAM=str(other))

    def test_a_missing_library(self):
        self.expect_refusal("the program /no/ds_node cannot be run there (exit code 127)", DS_NODE_PROGRAM="/no/ds_node")

    def test_a_missing_program_of_one_machine(self):
        hosts = self.hostfile()
        command = [str(BINARIES / "deepspeed"), "--hostfile", hosts, "--launcher", "ssh", "/no/such/program"]
        made = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(made.returncode, 127, made.stderr)
        self.assertIn("host worker-", made.stderr)
        self.assertIn("/no/such/program", made.stderr)

    # --- going on ---

    def check_elastic(self, runner):
        self.require(runner)
        hosts = ["worker-0 slots=2", "worker-1 slots=2", "worker-2 slots=2"]
        flags = ["--elastic_training", "--min_elastic_nodes", "2", "--max_restarts", "3"]
        self.start(runner, kind="wait_first", hosts=hosts, flags=flags)
        self.wait_for_ranks([f"rank{rank}.0" for rank in range(6)])
        self.machines[1].set_link("down")
        self.assertEqual(self.end(), 0, self.said())
        self.assertIn("host worker-1 is lost", self.said())
        self.assertIn("the job starts again (1 of at most 3) on 2 of 2 machines", self.said())
        again = [self.found(f"rank{rank}.1") for rank in range(4)]
        self.assertEqual([found["host"] for found in again], ["worker-0", "worker-0", "worker-2", "worker-2"])
        self.assertEqual({found["WORLD_SIZE"] for found in again}, {"4"})
        self.expect_nothing_left()

    def test_an_elastic_job_goes_on_without_a_lost_machine(self):
        self.check_elastic("ssh")

    def test_an_elastic_job_goes_on_by_pdsh(self):
        self.check_elastic("pdsh")

    def test_an_elastic_job_ends_with_too_few_machines(self):
        self.start("ssh", kind="wait", flags=["--elastic_training", "--min_elastic_nodes", "2"])
        self.wait_for_ranks()
        self.machines[1].set_link("down")
        self.assertEqual(self.end(), 1, self.said())
        self.assertIn("1 machines are left, --min_elastic_nodes is 2", self.said())


def start_slurm(folder, hosts):
    """Starts Slurm's daemons: the controller here, a node on each machine."""
    place = folder / "slurm"
    place.mkdir()
    nodes = "\n".join(f"NodeName={host.name} NodeAddr={host.address} CPUs=4 State=UNKNOWN" for host in hosts)
    (place / "slurm.conf").write_text(
        f"""ClusterName=test
SlurmctldHost=launcher(10.77.0.1)
AuthType=auth/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={place}
SlurmdSpoolDir={place}/%n
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/%n.pid
SlurmctldLogFile={place}/slurmctld.log
SlurmdLogFile={place}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
ReturnToService=2
SwitchType=switch/none
MpiDefault=none
SlurmdParameters=config_overrides
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:16
"""
    )
    (place / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
    os.environ["SLURM_CONF"] = str(place / "slurm.conf")
    munge = pathlib.Path("/run/munge")
    munge.mkdir(exist_ok=True)
    key = place / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    machines.sh(
        "munged",
        "--force",
        f"--key-file={key}",
        f"--pid-file={place}/munged.pid",
        f"--log-file={place}/munged.log",
        f"--seed-file={place}/munged.seed",
    )
    machines.sh("slurmctld", "-f", str(place / "slurm.conf"))
    for host in hosts:
        (place / host.name).mkdir()
        host.run("slurmd", "-N", host.name, "-f", str(place / "slurm.conf"))
    wait_until(
        lambda: "idle" in machines.sh("sinfo", "-h", "-o", "%T") and "unk" not in machines.sh("sinfo", "-h", "-o", "%T"), "Slurm's nodes"
    )


if __name__ == "__main__":
    reason = "" if os.environ.get(machines.INSIDE) else machines.why_not()
    if reason:
        print(f"skipped: machines of network namespaces: {reason}")
        sys.exit(77)
    sys.argv.insert(1, str(BINARIES))
    machines.enter()
    sys.argv.pop(1)
    unittest.main(verbosity=2)
