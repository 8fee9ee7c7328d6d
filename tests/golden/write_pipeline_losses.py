"""Writes tests/python/golden/pipeline_losses.json: what DeepSpeed's own pipeline gives for the program of the tests (DeepSpeed 0.19.6).

DS_ACCELERATOR=cpu python tests/golden/write_pipeline_losses.py
"""
import json
import pathlib
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
}

found = {name: run("train_pipeline.py", options, timeout=200) for name, options in CASES.items()}
(TESTS / "golden" / "pipeline_losses.json").write_text(json.dumps(found, indent=0) + "\n")
