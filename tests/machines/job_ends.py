"""How jobs of several machines end, and go on: one death ends the job on all machines."""

import contextlib
import os
import pathlib
import signal
import time

from jobs import JobTest, installed_runners, mpirun_of
from machines import is_below, processes, sh, wait_until

# Repeats each way in which a job may be lost.
TIMES = int(os.environ.get("DS_MACHINES_TIMES", "1"))


class EndsTest(JobTest):
    # --- one death ends the job ---

    def lose(self, runner, what, do, code, cause, on=None, has_orphans=False):
        """Does something to a job that runs, as often as is asked for: it ends with the code (None: any but 0), says the cause, and
        leaves nothing. has_orphans: what a killed runner or launcher had started ends with its links, a moment later."""
        self.require(runner)
        longest = 0
        for _ in range(TIMES):
            self.end_everything()
            self.reset()
            self.start(runner, kind="wait")
            self.wait_for_ranks()
            victim = do()
            began = time.monotonic()
            found = self.end()
            if has_orphans:
                wait_until(lambda: not self.left_beside_the_launcher(), "what the runner had started ends")
            self.assertEqual(self.left_beside_the_launcher(), [], "what it started here goes with it")
            self.assertTrue(found == code or (code is None and found != 0), f"{found}\n{self.said()}")
            lines = [line for line in self.said().splitlines() if cause.format(victim=victim) in line]
            self.assertEqual(len(lines), 1 if cause else len(lines), self.said())
            self.expect_nothing_left(on)
            if runner == "slurm":
                wait_until(lambda: not sh("squeue", "-h").strip(), "Slurm's jobs end")
            longest = max(longest, time.monotonic() - began)
            for machine in self.machines:
                machine.set_link("up")
                machine.send(signal.SIGCONT)
            self.expect_nothing_left()
        print(f"{what} by {runner}: {TIMES} of {TIMES}, the longest end took {longest:.1f} s", flush=True)

    def signal_rank(self, rank, number):
        victim = self.found(f"rank{rank}.0")["pid"]
        os.kill(victim, number)
        return victim

    def check_failure(self, runner):
        cause = "host worker-1: rank 2 (pid {victim}) was ended by SIGKILL"
        self.lose(runner, "SIGKILL of a rank", lambda: self.signal_rank(2, signal.SIGKILL), 137, cause)

    def test_ends_after_a_killed_rank_by_ssh(self):
        self.check_failure("ssh")

    def test_ends_after_a_killed_rank_by_pdsh(self):
        self.check_failure("pdsh")

    def test_ends_after_a_killed_rank_by_openmpi(self):
        self.check_failure("openmpi")

    def test_ends_after_a_killed_rank_by_mpich(self):
        self.check_failure("mpich")

    def test_ends_after_a_killed_rank_by_slurm(self):
        self.check_failure("slurm")

    def test_ends_with_the_code_of_the_rank_that_fails(self):
        self.assertEqual(self.run_job("ssh", kind="fail"), 7, self.said())
        self.assertIn("host worker-1: rank 3", self.said())
        self.assertIn("ended with exit code 7", self.said())

    def check_lost(self, runner, what, end_machine, expected, on=None):
        self.lose(runner, what, lambda: end_machine(self.machines[1]), 1, f"host worker-1 is lost: {expected}", on)

    def test_ends_after_a_killed_node_program(self):
        for runner in ("ssh", "pdsh"):
            with self.subTest(runner):
                self.check_lost(runner, "SIGKILL of ds_node and its supervisor", self.kill_programs, "its connection ended")

    def test_ends_after_a_killed_node_program_of_a_rank(self):
        # MPI and Slurm notice as well, and may be the first to say so.
        for runner in set(installed_runners()) - {"ssh", "pdsh"}:
            with self.subTest(runner):
                self.lose(runner, "SIGKILL of ds_node and its supervisor", lambda: self.kill_programs(self.machines[1]), None, "")
                self.assertTrue("is lost" in self.said() or f"--launcher {runner} ended with" in self.said(), self.said())

    def test_ends_after_a_killed_runner(self):
        for runner in set(installed_runners()) - {"ssh"}:
            program = {"pdsh": "pdsh", "slurm": "srun"}.get(runner) or str(mpirun_of(runner))
            with self.subTest(runner):
                self.lose(runner, f"SIGKILL of {program}", lambda program=program: self.kill_runner(program), None, "", has_orphans=True)

    def kill_runner(self, program):
        """Kills the processes of the runner here."""
        found = [pid for pid in processes(program) if is_below(pid, self.job.pid)]
        self.assertTrue(found, f"no {program}")
        self.kill_all(found)

    def kill_programs(self, machine, number=signal.SIGKILL):
        self.kill_all(machine.processes("/ds_node"), number)

    def kill_all(self, pids, number=signal.SIGKILL):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # the end of one may be that of another
                os.kill(pid, number)

    def test_ends_after_a_killed_ssh_session(self):
        def end_session(machine):
            for pid in machine.processes("/ds_node"):
                status = pathlib.Path(f"/proc/{pid}/status").read_text()
                parent = int(next(line.split()[1] for line in status.splitlines() if line.startswith("PPid:")))
                os.kill(parent, signal.SIGKILL)

        self.check_lost("ssh", "SIGKILL of sshd's child", end_session, "its connection ended")

    def test_ends_after_a_lost_network(self):
        for runner in ("ssh", "pdsh"):
            with self.subTest(runner):
                self.check_lost(runner, "the network's end", lambda machine: machine.set_link("down"), "nothing was heard from it")

    def test_ends_if_a_machine_hangs(self):
        # Once it goes on, what still runs there ends by itself.
        others = [self.machines[0], self.machines[2]]
        self.check_lost("ssh", "SIGSTOP of a machine", lambda machine: machine.send(signal.SIGSTOP), "nothing was heard from it", others)

    def test_ends_if_a_node_program_hangs(self):
        def stop(machine):
            for pid in machine.processes("/ds_node"):
                if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == "ds_node":
                    os.kill(pid, signal.SIGSTOP)

        self.check_lost("ssh", "SIGSTOP of ds_node", stop, "")

    def test_ends_if_a_node_program_and_its_supervisor_hang(self):
        for runner in ("ssh", "pdsh"):
            with self.subTest(runner):
                self.check_lost(
                    runner,
                    "SIGSTOP of ds_node and its supervisor",
                    lambda machine: self.kill_programs(machine, signal.SIGSTOP),
                    "nothing was heard from it",
                )

    def test_ends_if_a_rank_stays_stopped(self):
        cause = "host worker-1: rank 3 (pid {victim}) was stopped by SIGSTOP and has not gone on for 5 s"
        self.lose("ssh", "SIGSTOP of a rank", lambda: self.signal_rank(3, signal.SIGSTOP), 147, cause)

    def test_lets_a_stopped_rank_continue(self):
        self.start("ssh", kind="wait", DS_LINK_TIMEOUT="60")
        self.wait_for_ranks()
        victim = self.signal_rank(3, signal.SIGSTOP)
        wait_until(lambda: f"host worker-1: rank 3 (pid {victim}) was stopped by SIGSTOP; the other" in self.said(), "the line")
        self.signal_rank(3, signal.SIGCONT)
        self.job.send_signal(signal.SIGTERM)
        self.assertEqual(self.end(), 143, self.said())
        self.expect_nothing_left()

    # --- ends of the launcher ---

    def test_forwards_signals_to_the_launcher(self):
        for runner in installed_runners():
            for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)):
                with self.subTest(f"{runner} {number}"):
                    is_killed = number == signal.SIGKILL
                    self.lose(
                        runner, f"{number.name} of the launcher", lambda: self.job.send_signal(number), code, "", has_orphans=is_killed
                    )

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
        self.assertIn("the job starts again (1 of at most 3); host worker-1 was lost and is tried once more", self.said())
        again = [self.found(f"rank{rank}.1") for rank in range(4)]
        self.assertEqual([found["host"] for found in again], ["worker-0", "worker-0", "worker-2", "worker-2"])
        self.assertEqual({found["WORLD_SIZE"] for found in again}, {"4"})
        self.expect_nothing_left()

    def test_continues_an_elastic_job_without_a_lost_machine(self):
        self.check_elastic("ssh")

    def test_continues_an_elastic_job_by_pdsh(self):
        self.check_elastic("pdsh")

    def test_ends_an_elastic_job_with_too_few_machines(self):
        self.start("ssh", kind="wait", flags=["--elastic_training", "--min_elastic_nodes", "2"])
        self.wait_for_ranks()
        self.machines[1].set_link("down")
        self.assertEqual(self.end(), 1, self.said())
        self.assertIn("too few for --min_elastic_nodes", self.said())

    def test_takes_in_a_machine_that_comes_back(self):
        hosts = ["worker-0 slots=1", "worker-1 slots=1", "worker-2 slots=1"]
        self.start("ssh", kind="wait_first", hosts=hosts, flags=["--elastic_training", "--max_restarts", "3"], DS_TEST_WAITS="2")
        self.wait_for_ranks([f"rank{rank}.0" for rank in range(3)])
        self.machines[1].set_link("down")
        self.wait_for_ranks([f"rank{rank}.1" for rank in range(2)])
        self.machines[1].set_link("up")
        os.kill(self.found("rank0.1")["pid"], signal.SIGKILL)
        self.assertEqual(self.end(), 0, self.said())
        hosts = [[self.found(f"rank{rank}.{start}")["host"] for rank in range(3 - start % 2)] for start in range(3)]
        every = ["worker-0", "worker-1", "worker-2"]
        self.assertEqual(hosts, [every, ["worker-0", "worker-2"], every])
        self.expect_nothing_left()
