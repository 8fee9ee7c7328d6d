"""`accelerate launch` with the files that `accelerate config` writes: losses and saved weights as DeepSpeed gave them."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from accelerate.commands.config.config_args import ClusterConfig

from launching import result_of

HERE = pathlib.Path(__file__).parent
GOLDEN = json.loads((HERE / "golden" / "accelerate_launch.json").read_text())
PROGRAM = HERE / "programs" / "launched_bert.py"

ANSWERS = dict(gradient_accumulation_steps=2, gradient_clipping=1.0, offload_optimizer_device="none", offload_param_device="none")
STAGE3 = dict(ANSWERS, zero_stage=3, zero3_init_flag=True, zero3_save_16bit_model=True)
FILE = {
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": 2,
    "gradient_clipping": 1.0,
    "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": True, "reduce_bucket_size": "auto"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "weight_decay": "auto", "torch_adam": True}},
    "scheduler": {
        "type": "WarmupDecayLR",
        "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto", "total_num_steps": "auto"},
    },
}
CASES = {
    "stage 2": dict(ANSWERS, zero_stage=2, zero3_init_flag=False),
    "stage 2, optimizer on the CPU": dict(ANSWERS, zero_stage=2, zero3_init_flag=False, offload_optimizer_device="cpu"),
    "stage 3": STAGE3,
    "stage 3 on the CPU": dict(STAGE3, offload_optimizer_device="cpu", offload_param_device="cpu"),
    "file": dict(deepspeed_config_file="ds_config.json", zero3_init_flag=True),
}


def write_files(folder, answers, precision):
    (folder / "ds_config.json").write_text(json.dumps(FILE))
    config = ClusterConfig(
        compute_environment="LOCAL_MACHINE",
        distributed_type="DEEPSPEED",
        mixed_precision=None if "deepspeed_config_file" in answers else precision,
        use_cpu=True,
        debug=False,
        num_processes=2,
        machine_rank=0,
        num_machines=1,
        main_process_port=0,  # a free one
        deepspeed_config=answers,
    )
    config.to_yaml_file(folder / "config.yaml")


def launch(folder, answers, precision="no"):
    """Returns what rank 0 printed of a training in this folder."""
    write_files(folder, answers, precision)
    options = json.dumps({"dummies": "deepspeed_config_file" in answers, "save": str(folder / "saved")})
    command = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", "config.yaml", PROGRAM, options]
    ended = subprocess.run(command, cwd=folder, env=dict(os.environ, OMP_NUM_THREADS="1"), capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, (ended.stdout + ended.stderr)[-4000:]
    return result_of(ended.stdout)


def expect_those_of_deepspeed(found, golden, tolerance):
    assert found["losses"] == pytest.approx(golden["losses"], rel=tolerance)
    assert found["norm"] == pytest.approx(golden["norm"], rel=tolerance)
    assert [found[key] for key in ("processes", "zero", "is_partitioned")] == [
        golden[key] for key in ("processes", "zero", "is_partitioned")
    ]


@pytest.mark.parametrize("case", CASES)
def test_takes_the_answers_of_accelerate_config(case, tmp_path):
    expect_those_of_deepspeed(launch(tmp_path, CASES[case]), GOLDEN[case], 1e-6)


def test_takes_the_files_mixed_precision(tmp_path):
    expect_those_of_deepspeed(launch(tmp_path, STAGE3, "bf16"), GOLDEN["bf16"], 2e-3)
