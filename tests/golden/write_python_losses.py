"""Writes tests/python/golden/losses.json: what DeepSpeed gives for the program of the tests (DeepSpeed 0.19.6).

DS_ACCELERATOR=cpu python tests/golden/write_python_losses.py [NAME...]
"""

import json
import pathlib
import sys

TESTS = pathlib.Path(__file__).resolve().parents[1] / "python"
sys.path.insert(0, str(TESTS))

from launching import run  # noqa: E402

CASES = {
    "fp32": {"stage": 2},
    "bf16": {"stage": 2, "dtype": "bf16"},
    "AdamW": {"stage": 2, "client": "AdamW", "schedule": "object"},
    "SGD": {"stage": 2, "client": "SGD", "schedule": "object"},
    "RMSprop": {"stage": 2, "client": "RMSprop", "schedule": "object"},
    "NAdam": {"stage": 2, "client": "NAdam", "schedule": "object"},
    "lambda": {"stage": 2, "schedule": "lambda"},
    "fp16": {"stage": 2, "dtype": "fp16"},
    "bf16 at stage 0": {"stage": 0, "dtype": "bf16"},
    "55 steps": {"stage": 2, "micro_steps": 110},
}

path = TESTS / "golden" / "losses.json"
found = json.loads(path.read_text()) if path.exists() else {}
for name in sys.argv[1:] or CASES:
    found[name] = run("train_gpt.py", CASES[name], timeout=400)
path.write_text(json.dumps(found, indent=0) + "\n")
