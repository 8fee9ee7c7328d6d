"""How processes begin and end: launchers, exit statuses, ranks that fail."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest

from launching import PROGRAMS, finish, free_port, start

ENDS = PROGRAMS / "ends.py"
TRAINED = 'RESULT {"trained": true}'


# How an interpreter ends is a race of threads: DEEPSPEED_TEST_ENDS=50 looks at 50 runs of each kind instead of one.
RUNS = int(os.environ.get("DEEPSPEED_TEST_ENDS", 1))
STAGES = (2, 3, 0, 1)

ENDINGS = [("normal", 0), ("destroy", 0), ("held", 0), ("groups", 0), ("exception", 1), ("exit", 3), ("sigterm", -15)]


@pytest.mark.parametrize("how, expected", ENDINGS)
def test_exits_with_the_scripts_status(how, expected):
    begin = ENDINGS.index((how, expected))
    for number in range(begin, begin + RUNS):
        stage = STAGES[number % len(STAGES)]
        for status, output in finish(start(ENDS, json.dumps({"how": how}), stage)):
            assert status == expected, output[-2000:]


def test_ends_a_wait_for_another_rank_by_ctrl_c():
    waiting, missing = start("waits.py")
    try:
        assert any("waiting" in line for line in iter(waiting.stdout.readline, ""))
        time.sleep(1.0)
        waiting.send_signal(signal.SIGINT)
        output, _ = waiting.communicate(timeout=120)  # the rank alone would wait for half an hour
        assert waiting.returncode == 7 and "interrupted" in output, output[-2000:]
    finally:
        for process in (waiting, missing):
            process.kill()
            process.wait()


def launch(*command, **variables):
    environ = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    result = subprocess.run(
        command, env=dict(environ, **variables), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600
    )
    assert result.returncode == 0 and TRAINED in result.stdout, result.stdout[-3000:]


ARGUMENT = json.dumps({"how": "normal"})


def test_ends_under_torchrun():
    port = str(free_port())
    launch(sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port", port, ENDS, ARGUMENT)


def test_ends_under_the_launcher():
    program = pathlib.Path(os.environ["DEEPSPEED_PROGRAMS"]) / "deepspeed"
    port = str(free_port())
    launch(program, "--num_procs", "2", "--master_port", port, "--no_local_rank", ENDS, ARGUMENT, PYTHON=sys.executable)


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed")
def test_ends_under_mpirun():
    launch(
        "mpirun",
        "--allow-run-as-root",
        "--oversubscribe",
        "-np",
        "2",
        sys.executable,
        ENDS,
        ARGUMENT,
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(free_port()),
    )


def test_ends_without_a_launcher():
    launch(sys.executable, ENDS, ARGUMENT, MASTER_PORT=str(free_port()))


def test_imports_quickly_and_without_pydantic():
    code = (
        "import sys, time; start = time.process_time(); import torch; begin = time.process_time(); import deepspeed; "
        "print((time.process_time() - begin) / (begin - start), 'pydantic' in sys.modules)"
    )
    shares = []  # of what torch takes: other tests run beside this one, and make both slower
    for _ in range(3):
        share, has_pydantic = subprocess.check_output([sys.executable, "-c", code], text=True).split()
        assert has_pydantic == "False"
        shares.append(float(share))
    assert min(shares) < 0.25, shares
