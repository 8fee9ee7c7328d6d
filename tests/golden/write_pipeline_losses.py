"""Writes tests/python/golden/pipeline_losses.json and pipeline_checkpoint_zero*/: what DeepSpeed's own pipeline gives for the program of
the tests (DeepSpeed 0.19.6).

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
    "50 steps, four stages": {"stages": 4, "steps": 50},
    "50 steps, ZeRO 1": {"stages": 2, "steps": 50, "zero": 1, "clip": 0.5},
}
RANKS = {"50 steps, four stages": 4, "50 steps, ZeRO 1": 4}
CHECKPOINTS = {"saved": {"zero": 1}, "saved at ZeRO 0": {"zero": 0}}
SMALL = {"stages": 2, "blocks": 1, "partition": "uniform", "save_at": 4}

for name, options in CHECKPOINTS.items():
    folder = TESTS / "golden" / f"pipeline_checkpoint_zero{options['zero']}"
    shutil.rmtree(folder, ignore_errors=True)
    CASES[name] = {**SMALL, **options, "save": str(folder)}
found = {name: run("train_pipeline.py", options, ranks=RANKS.get(name, 2), timeout=400) for name, options in CASES.items()}
(TESTS / "golden" / "pipeline_losses.json").write_text(json.dumps(found, indent=0) + "\n")
for script in (TESTS / "golden").glob("pipeline_checkpoint_zero*/*.py"):
    script.unlink()
