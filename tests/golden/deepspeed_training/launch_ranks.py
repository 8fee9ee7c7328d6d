"""Starts the ranks of a Gloo job on this machine by hand: one process a rank, one thread each."""

import os
import socket
import subprocess
import sys
import time


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def rank_environment(rank, world_size, port):
    return dict(
        os.environ,
        DS_ACCELERATOR="cpu",
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(world_size),
        LOCAL_SIZE=str(world_size),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        OMP_NUM_THREADS="1",
        LAUNCH_TIME=repr(time.time()),  # of this rank's process, seconds since the epoch
        PATH=os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", ""),  # ninja lies there
    )


def launch_command(command, world_size):
    """Runs the command once a rank; raises when one fails. Rank 0's output is returned."""
    port = free_port()
    processes = [
        subprocess.Popen(
            list(map(str, command)),
            env=rank_environment(rank, world_size, port),
            text=True,
            stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
        )
        for rank in range(world_size)
    ]
    output = processes[0].communicate()[0]
    codes = [process.wait() for process in processes]
    if any(codes):
        raise RuntimeError(f"ranks of {command[0]} ended with {codes}")
    return output


def launch_ranks(script, arguments, world_size):
    """The same for `python script arguments...`."""
    return launch_command([sys.executable, script, *arguments], world_size)
