"""The package's programs on the command line: each console script becomes the program of the engine."""
import os
import sys


def run(name, words):
    """Becomes the program."""
    folder = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bin")
    program = os.path.join(folder, name)
    os.environ.setdefault("PYTHON", sys.executable)  # by which the launcher runs scripts
    os.execv(program, [program, *words])


def deepspeed():
    """Starts a script once a rank and watches over the ranks; scripts run by the Python of this package."""
    from deepspeed.launcher import runner

    runner.main()


def zero_to_fp32():
    """Writes the fp32 weights of a checkpoint."""
    run("zero_to_fp32", sys.argv[1:])


def ds_to_universal():
    """Turns a checkpoint into a universal one."""
    run("ds_to_universal", sys.argv[1:])


def ds_bench():
    """Measures the collectives between ranks."""
    run("ds_bench", sys.argv[1:])


def ds_io():
    """Measures the disk of a folder."""
    run("ds_io", sys.argv[1:])


def ds_schedule():
    """Draws the schedule of a pipeline."""
    run("ds_schedule", sys.argv[1:])


def ds_report():
    """Prints what is installed and what works here."""
    from deepspeed.env_report import cli_main

    cli_main()
