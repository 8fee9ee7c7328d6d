"""How ranks meet: the ways to join a job, what listens meanwhile, whom that asks, and torchrun in all its modes."""

import os
import pathlib
import shutil
import socket
import subprocess
import sys

import pytest

from launching import PROGRAMS, finish, free_port, result_of, start

JOINS = PROGRAMS / "joins.py"


@pytest.mark.parametrize("how", ["twice", "again", "tcp", "env", "script", "store"])
def test_joins_in_each_way(how):
    results = finish(start(JOINS, how, forked=True))
    assert [status for status, _ in results] == [0, 0], results
    assert result_of(results[0][1]) == 1.0


def test_joins_by_a_file(tmp_path):
    results = finish(start(JOINS, "file", tmp_path / "store", forked=True))
    assert result_of(results[0][1]) == 1.0


def test_joins_spawned_ranks():
    ((status, output),) = finish(start(JOINS, "spawned", ranks=1))
    assert status == 0, output[-3000:]


def test_refuses_a_port_of_another_job_of_this_user():
    first, second = start("waits.py"), []
    try:
        assert any("waiting" in line for line in iter(first[0].stdout.readline, ""))
        port = port_of(first[0])
        second = start(JOINS, "env", env={"MASTER_PORT": port})
        ((status, output),) = finish(second[:1])
        assert status == 1 and "is taken" in output and "MASTER_PORT" in output, output[-2000:]
    finally:
        for process in [*first, *second]:
            process.kill()
            process.wait()


def port_of(process):
    variables = pathlib.Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
    return next(word for word in variables if word.startswith(b"MASTER_PORT=")).decode().split("=")[1]


def has_namespaces():
    return shutil.which("unshare") and subprocess.run(["unshare", "-m", "-n", "true"], capture_output=True).returncode == 0


def test_listens_only_at_loopback_and_asks_no_name_server_on_one_machine():
    if not has_namespaces():
        pytest.skip("no namespaces of one's own")
    command = ["unshare", "-m", "-n", sys.executable, PROGRAMS / "dead_name_server.py", "listens.py"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-4000:]
    result = result_of(done.stdout)
    if not result["is_asked"]:
        pytest.skip("names come from no name server")
    assert result == {"is_asked": True, "questions": [], "listeners": []}


def own_address():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        return probe.getsockname()[0]


def nodes_of(modes, program, timeout=240):
    """Runs torchrun once a node; returns what all of them printed."""
    dropped = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    environ = {key: value for key, value in os.environ.items() if key not in dropped}
    environ.update(OMP_NUM_THREADS="1")
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", *mode, *map(str, program)],
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for mode in modes
    ]
    output = ""
    for status, text in finish(processes, timeout):
        assert status == 0, text[-4000:]
        output += text
    return output


def modes_of(name):
    port = free_port()
    one = ["--nproc-per-node", "2"]
    if name == "standalone":
        return [["--standalone", *one]]
    if name == "c10d":
        return [["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "job", *one]]
    if name == "static":
        return [["--master-port", str(port), *one]]
    address = own_address()
    if address is None:
        pytest.skip("this machine is in no network")
    two = ["--nnodes", "2", "--nproc-per-node", "1"]  # which do not know that they share a machine
    if name == "static, two nodes":
        where = ["--master-addr", address, "--master-port", str(port)]
        return [[*two, *where, "--node-rank", str(node)] for node in range(2)]
    where = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{address}:{port}", "--rdzv-id", "job", "--local-addr", address]
    return [[*two, *where, "--rdzv-conf", f"is_host={int(node == 0)}"] for node in range(2)]


MODES = ["standalone", "c10d", "static", "static, two nodes", "c10d, two nodes"]


@pytest.mark.parametrize("mode", MODES)
def test_starts_a_python_program_by_torchrun(mode):
    assert result_of(nodes_of(modes_of(mode), [JOINS, "twice"])) == 1.0


@pytest.mark.parametrize("mode", MODES)
def test_starts_a_cpp_program_by_torchrun(mode):
    program = pathlib.Path(os.environ["DEEPSPEED_PROGRAMS"]) / "ds_bench"
    words = ["--backend", "gloo", "--all-reduce", "--maxsize", "4K", "--trials", "2", "--warmups", "1"]
    output = nodes_of([[*mode, "--no-python"] for mode in modes_of(mode)], [program, *words])
    assert "all_reduce" in output or "all-reduce" in output, output[-2000:]


@pytest.mark.parametrize("mode", ["static", "c10d, two nodes"])
def test_restarts_ranks_by_torchrun(mode):
    modes = [[*mode, "--max-restarts", "1"] for mode in modes_of(mode)]
    assert result_of(nodes_of(modes, [JOINS, "restarted"])) == 1.0


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed")
def test_starts_a_cpp_program_by_mpirun():
    program = pathlib.Path(os.environ["DEEPSPEED_PROGRAMS"]) / "ds_bench"
    words = ["--backend", "gloo", "--all-reduce", "--maxsize", "4K", "--trials", "2", "--warmups", "1"]
    environ = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    environ.update(MASTER_PORT=str(free_port()))
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2", program, *words]
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    assert done.returncode == 0 and "started by Open MPI" in done.stdout, done.stdout[-2000:]
