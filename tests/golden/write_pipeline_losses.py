"""Writes tests/python/golden/pipeline_losses.json and pipeline_checkpoint/: what DeepSpeed's own pipeline gives for the program of the
tests (DeepSpeed 0.19.6).

DS_ACCELERATOR=cpu python tests/golden/write_pipeline_losses.py
"""
import json
import pathlib
import shutil
import sys

TESTS = pathlib.Path(__file__).resolve().parents[1] / "python"
sys.path.insert(0, str(TESTS))

from launching import run  # noqa: E402

CASES = {
    "fp32": {"stages": 2},
    "one stage": {"stages": 1},
    "clip": {"stages": 2, "zero": 1, "clip": 0.5},
    "bf16": {"stages": 2, "dtype": "bf16"},
    "dropout": {"stages": 2, "seed_layers": True, "dropout": 0.2, "partition": "uniform"},
    "parameters": {"stages": 2, "partition": "parameters"},
    "50 steps": {"stages": 2, "steps": 50},
}
CHECKPOINT = TESTS / "golden" / "pipeline_checkpoint"
SMALL = {"stages": 2, "zero": 1, "blocks": 1, "partition": "uniform"}

shutil.rmtree(CHECKPOINT, ignore_errors=True)
CASES["saved"] = {**SMALL, "save_at": 4, "save": str(CHECKPOINT)}
found = {name: run("train_pipeline.py", options, timeout=200) for name, options in CASES.items()}
(TESTS / "golden" / "pipeline_losses.json").write_text(json.dumps(found, indent=0) + "\n")
for script in CHECKPOINT.glob("*.py"):
    script.unlink()
