"""Starts programs once a rank, and reads the line of JSON that rank 0 prints."""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time

from forked_ranks import start_fork

PROGRAMS = pathlib.Path(__file__).parent / "programs"
READ_AS_LIBRARIES_LOAD = ("CUDA_", "GOMP_", "KMP_", "LD_", "MALLOC_", "MKL_", "OMP_", "PYTHON", "TORCH_")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(program, *arguments, ranks=2, env=None, cwd=None, forked=False):
    """Returns the processes of a program, which know their ranks by the variables of torchrun. Forked ones begin sooner."""
    port = str(free_port())
    processes = []  # a program is a name in the folder, or a whole path
    for rank in range(ranks):
        variables = dict(
            os.environ,
            RANK=str(rank),
            LOCAL_RANK=str(rank),
            WORLD_SIZE=str(ranks),
            LOCAL_WORLD_SIZE=str(ranks),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=port,
            OMP_NUM_THREADS="1",
            PYTHONFAULTHANDLER="1",
        )
        variables.update(env or {})
        command = [sys.executable, str(PROGRAMS / program), *map(str, arguments)]
        if forked and not any(name.startswith(READ_AS_LIBRARIES_LOAD) for name in env or {}):
            processes.append(start_fork(command[1:], variables, cwd, rank % 2))
            continue
        processes.append(subprocess.Popen(command, env=variables, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    return processes


def finish(processes, timeout=600):
    """Waits; returns [(exit status, output)]. Where a rank takes too long, all are ended, which is an AssertionError with what each has
    printed, and with its stacks at the end."""
    outputs = [[] for _ in processes]
    # Each rank has a reader: one whose pipe is full would wait, and the others for it.
    readers = [
        threading.Thread(target=lambda read=process.stdout, to=output: to.append(read.read()))
        for process, output in zip(processes, outputs)
    ]
    for reader in readers:
        reader.start()
    end = time.monotonic() + timeout
    late = []
    try:
        for rank, process in enumerate(processes):
            try:
                process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                late.append(rank)
        for rank in late:
            processes[rank].send_signal(signal.SIGABRT)  # faulthandler writes the stacks
            try:
                processes[rank].wait(20)
            except subprocess.TimeoutExpired:
                pass
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
    for reader in readers:
        reader.join(20)  # a child of the rank may hold its output open
    texts = ["".join(output) for output in outputs]
    assert not late, f"ranks {late} did not end within {timeout} s\n" + "\n".join(
        f"rank {rank}:\n{text[-8000:]}" for rank, text in enumerate(texts)
    )
    return [(process.returncode, text) for process, text in zip(processes, texts)]


def run(program, options=None, ranks=2, timeout=600, env=None, cwd=None):
    """Runs a program to its end; returns what rank 0 printed. A rank that fails is an AssertionError with its output."""
    arguments = [] if options is None else [json.dumps(options)]
    results = finish(start(program, *arguments, ranks=ranks, env=env, cwd=cwd, forked=True), timeout)
    for rank, (status, output) in enumerate(results):
        assert status == 0, f"rank {rank} of {program} ended with {status}:\n{output[-4000:]}"
    return result_of(results[0][1])


def result_of(output):
    """Returns what the last line of a result holds."""
    lines = [line for line in output.splitlines() if line.startswith("RESULT ")]
    assert lines, f"no result was printed:\n{output[-4000:]}"
    return json.loads(lines[-1][len("RESULT ") :])


def names_of(program):
    """Returns the probes of a program of probes."""
    return re.findall(r"@probe\ndef (\w+)", (PROGRAMS / program).read_text())


def expect_to_pass(program, name, ranks=2, env=None):
    """Runs one probe of a program on all ranks; a rank on which it fails is an AssertionError with its output."""
    for rank, (status, output) in enumerate(finish(start(program, name, ranks=ranks, env=env, forked=True))):
        assert status == 0, f"rank {rank} ended with {status}:\n{output[-3000:]}"
        assert f"passed {name}" in output
