"""The package's programs on the command line: each console script becomes the program of the engine."""
import os
import sys


def _exec(name, *arguments):
    folder = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bin")
    program = os.path.join(folder, name)
    os.execv(program, [program, *arguments, *sys.argv[1:]])


def deepspeed():
    """Starts a script once a rank and watches over the ranks; scripts run by the Python of this package."""
    os.environ.setdefault("PYTHON", sys.executable)
    _exec("deepspeed")


def zero_to_fp32():
    """Writes the fp32 weights of a checkpoint."""
    _exec("zero_to_fp32")


def ds_to_universal():
    """Turns a checkpoint into a universal one."""
    _exec("ds_to_universal")


def ds_io():
    """Measures the disk of a folder."""
    _exec("ds_io")


def ds_report():
    """Prints what is installed and what works here."""
    from deepspeed.env_report import cli_main

    cli_main()
