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


def launch_ranks(script, arguments, world_size, threads=1):
    """Runs `python script arguments...` once a rank; raises when one fails. Rank 0's output is returned."""
    port = str(free_port())
    processes = []
    for rank in range(world_size):
        environment = dict(
            os.environ, DS_ACCELERATOR="cpu", RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world_size),
            LOCAL_SIZE=str(world_size), MASTER_ADDR="127.0.0.1", MASTER_PORT=port, OMP_NUM_THREADS=str(threads),
            LAUNCH_TIME=repr(time.time()),
            PATH=os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", ""),  # ninja lies there
        )
        processes.append(subprocess.Popen(
            [sys.executable, str(script), *map(str, arguments)], env=environment, text=True,
            stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL))
    output = processes[0].communicate()[0]
    codes = [process.wait() for process in processes]
    if any(codes):
        raise RuntimeError(f"ranks of {script} ended with {codes}")
    return output
