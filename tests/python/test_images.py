"""A script as those for CIFAR are written, under each launcher, with the losses that DeepSpeed gave."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from launching import PROGRAMS, free_port, result_of

# Of rank 0's micro batches in the first epoch, as DeepSpeed 0.19.6 gave them. It has the same order in each epoch.
GOLDEN = [
    1.386255145072937,
    1.3897191286087036,
    1.406107783317566,
    1.4318909645080566,
    1.3753474950790405,
    1.3982311487197876,
    1.3364883661270142,
    1.3564815521240234,
]
CONFIG = {
    "train_batch_size": 32,
    "steps_per_print": 2000,
    "optimizer": {"type": "Adam", "params": {"lr": 0.01, "betas": [0.8, 0.999], "eps": 1e-8, "weight_decay": 3e-7, "torch_adam": True}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 0, "warmup_max_lr": 0.01, "warmup_num_steps": 4}},
    "gradient_clipping": 1.0,
    "prescale_gradients": False,
    "bf16": {"enabled": False},
    "fp16": {"enabled": False, "loss_scale": 0, "loss_scale_window": 500, "hysteresis": 2, "min_loss_scale": 1, "initial_scale_power": 15},
    "wall_clock_breakdown": False,
    "zero_optimization": {
        "stage": 2,
        "allgather_partitions": True,
        "reduce_scatter": True,
        "allgather_bucket_size": 50000000,
        "reduce_bucket_size": 50000000,
        "overlap_comm": True,
        "contiguous_gradients": True,
        "cpu_offload": False,
    },
}


def launchers():
    """Returns the beginning of each launcher's command, and the variables that it needs."""
    port = str(free_port())
    program = pathlib.Path(os.environ["DEEPSPEED_PROGRAMS"]) / "deepspeed"
    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2", sys.executable]
    return {
        "deepspeed": ([program, "--num_procs", "2", "--master_port", port], {"PYTHON": sys.executable}),
        "torchrun": ([sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port", port], {}),
        "mpirun": (mpirun, {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}),
    }


@pytest.mark.parametrize("launcher", ["deepspeed", "torchrun", "mpirun"])
def test_trains_equally_by_each_launcher(launcher, tmp_path):
    if launcher == "mpirun" and shutil.which("mpirun") is None:
        pytest.skip("mpirun is not installed")
    (tmp_path / "ds_config.json").write_text(json.dumps(CONFIG))
    begin, variables = launchers()[launcher]
    command = [*begin, PROGRAMS / "images.py", "--deepspeed", "--deepspeed_config", tmp_path / "ds_config.json"]
    environ = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    ended = subprocess.run(command, env=dict(environ, OMP_NUM_THREADS="1", **variables), capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, (ended.stdout + ended.stderr)[-4000:]
    found = result_of(ended.stdout)
    assert found["losses"][: len(GOLDEN)] == pytest.approx(GOLDEN, rel=1e-6) and len(found["losses"]) == 2 * len(GOLDEN)
    assert found["accuracy"] > 0.9 and found["ranks"] == 2
    assert found["local_rank"] == found["argument"] == 0
