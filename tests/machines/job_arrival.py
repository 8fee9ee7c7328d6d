"""What arrives at the ranks of other machines, what is refused before anything starts, and the tools for all machines."""

import json
import os
import pathlib
import re
import subprocess
import sys

import machines
from jobs import BINARIES, BUILD, NAMES, PYTHON, SECRET, JobTest, installed_runners

BY_SSH = ("ssh", "pdsh", "openmpi", "mpich")  # they go to the machines, or try them, by ssh

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


class ArrivalTest(JobTest):
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
            self.assertEqual(found["store_is_guarded"], 64)
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
        jobs = re.findall(r"--job (\w+)", self.said())
        self.assertEqual(len(jobs), runner == "pdsh")
        self.assertFalse([path for job in jobs for path in pathlib.Path("/tmp").glob(f"deepspeed_job_{job}*")])
        self.expect_nothing_left()

    def test_passes_arguments_by_ssh(self):
        self.check_arguments("ssh")

    def test_passes_arguments_by_pdsh(self):
        self.check_arguments("pdsh")

    def test_passes_arguments_by_openmpi(self):
        self.check_arguments("openmpi")

    def test_passes_arguments_by_mpich(self):
        self.check_arguments("mpich")

    def test_passes_arguments_by_slurm(self):
        self.check_arguments("slurm")

    def test_ignores_what_shells_print_at_their_start(self):
        keys = pathlib.Path.home() / ".ssh" / "authorized_keys"
        before = keys.read_text()
        keys.write_text(f"""command="echo '{{}}'; printf 'Welcome!'; eval \\"$SSH_ORIGINAL_COMMAND\\"" {before}""")
        try:
            for runner in ("ssh", "pdsh", "mpich"):
                if runner in installed_runners():
                    with self.subTest(runner):
                        self.assertEqual(self.run_job(runner), 0, self.said())
            keys.write_text(f"""command="echo This account is closed.; exit 1" {before}""")
            self.reset()
            self.expect_refusal("cannot be reached by ssh (", "what answers there wrote 'This account is closed.'")
        finally:
            keys.write_text(before)

    def test_drops_variables_with_the_names_of_the_job(self):
        for runner in set(installed_runners()) - {"ssh"}:
            with self.subTest(runner):
                names = [f"DEEPSPEED_JOB{end}" for end in ("", "_1", "_2")]
                self.assertEqual(self.run_job(runner, **dict.fromkeys(names, "e30=")), 0, self.said())

    def test_passes_over_addresses_of_the_launcher_that_lead_nowhere(self):
        # As many as would take minutes one after the other. The first machine sends what goes there to a hole.
        hole, worker = "10.77.0.240", self.machines[0]
        addresses = [f"10.99.0.{number}/32" for number in range(1, 41)]
        for address in addresses:
            machines.sh("ip", "addr", "add", address, "dev", "lo")
        worker.run("ip", "neigh", "replace", hole, "lladdr", "02:00:00:00:00:99", "nud", "permanent", "dev", "eth0")
        worker.run("ip", "route", "add", "10.99.0.0/24", "via", hole)
        try:
            for runner in installed_runners():
                with self.subTest(runner):
                    self.assertEqual(self.run_job(runner), 0, self.said())
        finally:
            worker.run("ip", "route", "del", "10.99.0.0/24")
            for address in addresses:
                machines.sh("ip", "addr", "del", address, "dev", "lo")

    # --- bad input, before anything starts ---

    def expect_refusal(self, *expected, runner="ssh", **options):
        self.assertNotEqual(self.run_job(runner, **options), 0, self.said())
        for text in expected:
            self.assertIn(text, self.said())
        self.assertFalse(list(self.out.iterdir()), "something was started")
        self.expect_nothing_left()

    def expect_refusals(self, *expected, runners=BY_SSH, **options):
        for runner in set(runners) & set(installed_runners()):
            with self.subTest(runner):
                self.expect_refusal(*expected, runner=runner, **options)

    def test_refuses_an_unreachable_host(self):
        hosts = ["worker-0 slots=1", "nowhere slots=1"]
        self.expect_refusals("host nowhere cannot be reached by ssh", "(--exclude)", runners=("ssh", "pdsh"), hosts=hosts)
        self.expect_refusals("host nowhere cannot be reached by ssh", "--no_ssh_check", runners=("openmpi", "mpich"), hosts=hosts)

    def test_refuses_an_address_that_no_machine_has(self):
        address = ["--master_addr", "10.77.0.99"]
        expected = "--master_addr 10.77.0.99 is no address of this machine"
        self.expect_refusals(expected, "host worker-0", runners=installed_runners(), flags=address)

    def test_refuses_another_version(self):
        other = self.folder / "other_node"
        other.write_text(
            """#!/bin/sh\nif [ "$(hostname)" = worker-1 ]; then echo '{"t":"hello","version":"0.0.1"}'; cat >/dev/null; else exec """
            + f"{BINARIES}/ds_node"
            + """ "$@"; fi\n"""
        )
        other.chmod(0o755)
        self.expect_refusals("host worker-1: the library there is version 0.0.1", DS_NODE_PROGRAM=str(other))

    def test_refuses_a_machine_that_lies(self):
        version = subprocess.run([str(BINARIES / "ds_node"), "--version"], capture_output=True, text=True).stdout.strip()
        hello = {"t": "hello", "version": version}
        liar = self.folder / "liar"
        no_message = "is lost: it has sent a line that is no message, or is too long"
        lies = [(hello, words, no_message) for words in ("b'x' * (17 << 20)", r"""b'[1, 2]\n'""")]
        lies += [(hello, r"""b'{"t":"'""", "is lost: its connection ended in the middle of a message")]
        lies += [(hello, r"""b'{"t":"no such"}\n'""", "a message 'no such' was not expected")]
        lies += [(hello, r"""b'{"t":"ended","code":' + b'[' * 10**6 + b']' * 10**6 + b'}\n'""", "'ended' has 'code' [...]")]
        lies += [(hello, r"""b'{"t":"planned","port":1e99}\n'""", "'planned' has 'port'")]
        lies += [(hello, r"""b'{"t":"ended","code":"x"}\n'""", "'ended' has 'code' \"x\", expected a whole number")]
        lies += [(dict(hello, process=7), "b''", "'hello' has 'process' 7, expected a text")]
        for first, words, expected in lies:
            with self.subTest(words):
                liar.write_text(
                    f"""#!{sys.executable}
import os, sys
if os.uname().nodename != "worker-1":
    os.execv("{BINARIES}/ds_node", ["{BINARIES}/ds_node", *sys.argv[1:]])
print({json.dumps(first)!r}, flush=True)
sys.stdin.readline()
sys.stdout.buffer.write({words})
"""
                )
                liar.chmod(0o755)
                self.expect_refusal("host worker-1", expected, DS_NODE_PROGRAM=str(liar))

    def test_refuses_a_missing_library(self):
        self.expect_refusals("the program /no/ds_node cannot be run there (exit code 127)", DS_NODE_PROGRAM="/no/ds_node")

    def test_refuses_another_python(self):
        other = self.folder / "python"
        old = 'if [ "$(hostname)" = worker-1 ] && [ "$1" = --version ]; then echo Python 2.7.0; exit; fi'
        other.write_text(f'#!/bin/sh\n{old}\nexec {sys.executable} "$@"\n')
        other.chmod(0o755)
        self.expect_refusal("host worker-1: the program runs by 'Python 2.7.0' there", "PYTHON", PYTHON=str(other))

    def test_names_the_machine_that_lacks_the_program(self):
        hosts = self.hostfile()
        command = [str(BINARIES / "deepspeed"), "--hostfile", hosts, "--launcher", "ssh", "/no/such/program"]
        made = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(made.returncode, 127, made.stderr)
        self.assertIn("host worker-", made.stderr)
        self.assertIn("/no/such/program", made.stderr)

    def test_finds_a_program_of_the_library_without_path(self):
        # The machines have no folder of the library in their PATH.
        self.assertEqual(self.run_job("ssh", program=["ds_schedule"]), 0, self.said())
        self.assertIn("stage 0", self.output.read_text())

    # --- tools ---

    def test_measures_the_links_within_and_between_machines(self):
        path, most = self.folder / "links.json", 0.4
        for machine in self.machines:
            machine.limit_link(f"{1000 * most:.0f}mbit")
        try:
            for runner in set(installed_runners()) & {"ssh", "openmpi"}:
                with self.subTest(runner):
                    path.unlink(missing_ok=True)
                    program = [str(BINARIES / "ds_bench")]
                    self.start(runner, "--backends", "shm", "--links", path, "--trials", 1, program=program, OMP_NUM_THREADS="1")
                    self.assertEqual(self.end(), 0, self.said())
                    output = self.output.read_text()
                    self.assertEqual([output.count(text) for text in ("within a node", "between nodes", "wrote ")], [1, 1, 1], output)
                    found = json.loads(path.read_text())
                    self.assertEqual(set(found), {"within_node", "between_nodes"})
                    within, between = (found[name]["gbps"] for name in ("within_node", "between_nodes"))
                    print(f"links by {runner}: {found}", flush=True)
                    # What a node receives goes through its link; what its ranks send each other does not.
                    self.assertTrue(0 < between < 1.2 * most < within, found)
                    self.assertTrue(all(speed["latency_us"] > 0 for speed in found.values()), found)
        finally:
            for machine in self.machines:
                machine.limit_link(None)
        # All ranks go by what rank 0 reads, on the other machine too.
        program, words = [str(BINARIES / "ds_bench")], ["--backends", "shm", "--all-reduce", "--maxsize", "1M", "--trials", 1]
        self.start("ssh", *words, program=program, DEEPSPEED_LINKS=str(path))
        self.assertEqual(self.end(), 0, self.said())
        self.assertNotIn("links.json", self.said())
        path.write_text("{}")
        self.start("ssh", *words, program=program, DEEPSPEED_LINKS=str(path))
        self.assertNotEqual(self.end(), 0, self.said())
        self.assertIn(f"{path} has no within_node", self.said())

    def test_runs_a_command_on_all_machines(self):
        command = [str(BINARIES / "ds_ssh"), "-f", self.hostfile(), "sh", "-c", 'hostname; echo "$0" "$1"', *WORDS[9:13]]
        made = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(made.returncode, 0, made.stderr)
        for number in range(2):
            name = f"worker-{number}: "  # Lines of the machines may alternate.
            lines = [line.removeprefix(name) for line in made.stdout.splitlines() if line.startswith(name)]
            self.assertEqual(lines, [f"worker-{number}", f"{WORDS[9]} {WORDS[10]}"], made.stdout)

    def test_reports_on_all_machines_without_python(self):
        command = [str(BINARIES / "ds_report"), "-f", self.hostfile()]
        made = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(made.returncode, 0, made.stderr)
        for number in range(2):
            self.assertIn(f"worker-{number}: CUDA devices", made.stdout)

    def test_reports_on_all_machines(self):
        if PYTHON == "-":
            self.skipTest("this build has no Python package")
        command = [PYTHON, "-m", "deepspeed.env_report", "--hide_operator_status", "--hostfile", self.hostfile()]
        made = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=str(BUILD / "python")))
        self.assertEqual(made.returncode, 0, made.stderr)
        for number in range(2):
            self.assertIn(f"worker-{number}: torch version", made.stdout)
