"""Defines the console scripts, each of which becomes the engine's program of that name."""

from __future__ import annotations

import sys

from deepspeed.launcher import runner
from deepspeed.launcher.programs import run


def deepspeed() -> None:
    """Starts a script once for each rank and watches the ranks. Scripts run with this package's Python."""
    runner.main()


def zero_to_fp32() -> None:
    """Writes the fp32 weights of a checkpoint."""
    run("zero_to_fp32", sys.argv[1:], needs_torch=True)


def ds_to_universal() -> None:
    """Turns a checkpoint into a universal one."""
    run("ds_to_universal", sys.argv[1:], needs_torch=True)


def ds_bench() -> None:
    """Measures the collectives between ranks."""
    run("ds_bench", sys.argv[1:], needs_torch=True)


def ds_io() -> None:
    """Measures the disk of a folder."""
    run("ds_io", sys.argv[1:], needs_torch=True)


def ds_schedule() -> None:
    """Draws the schedule of a pipeline."""
    run("ds_schedule", sys.argv[1:])


def ds_elastic() -> None:
    """Shows the batch sizes that the section elasticity of a config chooses."""
    run("ds_elastic", sys.argv[1:])


def ds_accelerate() -> None:
    """Writes Accelerate's YAML file and starts programs with its settings."""
    run("ds_accelerate", sys.argv[1:], needs_torch=True)


def ds_experiment() -> None:
    """Runs a search over trials of a C++ program."""
    run("ds_experiment", sys.argv[1:], needs_torch=True)


def ds_ssh() -> None:
    """Runs a command on all hosts of a hostfile."""
    run("ds_ssh", sys.argv[1:])


def ds_report() -> None:
    """Prints what is installed and what works here."""
    from deepspeed.env_report import cli_main

    cli_main()
