"""`accelerate launch` over several machines goes through this launcher."""

from jobs import PYTHON, JobTest


class AccelerateTest(JobTest):
    def test_starts_the_ranks_of_two_machines_by_accelerate(self):
        alone = self.losses_in_python("", [PYTHON, "-m", "deepspeed.launcher.runner"], flags=["--num_gpus", "4"])
        programs = self.folder / "programs"
        programs.mkdir()
        # What the package installs.
        (programs / "deepspeed").write_text(f'#!/bin/sh\nexec {PYTHON} -m deepspeed.launcher.runner "$@"\n')
        (programs / "deepspeed").chmod(0o755)
        command = [PYTHON, "-m", "accelerate.commands.launch", "--use_deepspeed", "--num_machines", "2", "--num_processes", "4"]
        command += ["--machine_rank", "0", "--main_process_ip", "10.77.0.10", "--main_process_port", "29501"]
        command += ["--deepspeed_hostfile", self.hostfile(), "--deepspeed_multinode_launcher", "pdsh"]
        self.require("pdsh")
        for filters in ([], ["--deepspeed_inclusion_filter", "worker-0@worker-1:0,1"]):
            found = self.losses_in_python("pdsh", [*command, *filters], is_whole=True, PATH=programs)
            self.expect_close(found, alone)
