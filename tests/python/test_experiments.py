"""A search over a C++ program's trials: its result, and that kills at any moment change nothing of it."""

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

PROGRAMS = Path(os.environ["DEEPSPEED_PROGRAMS"])
TRIAL = PROGRAMS.parent / "tests" / "searched_trial"

EXPERIMENT = """
name: line
entrypoint: [{program}]
hyperparameters:
  lr: {{type: log, base: 10, minval: -3, maxval: -0.5}}
  momentum: {{type: double, minval: 0.0, maxval: 0.9}}
searcher:
  name: adaptive_asha
  mode: sync
  metric: loss
  max_length: {{batches: 16}}
  max_trials: 8
  divisor: 2
  max_rungs: 3
resources: {{slots_per_trial: 1}}
max_restarts: 20
reproducibility: {{experiment_seed: 5}}
"""


def start(folder: Path) -> subprocess.Popen:
    (folder / "line.yaml").write_text(EXPERIMENT.format(program=TRIAL))
    words = [PROGRAMS / "ds_experiment", folder / "line.yaml", "--dir", folder / "search", "--slots", "2"]
    return subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def result_of(folder: Path) -> dict:
    return json.loads((folder / "search" / "result.json").read_text())


def processes_below(pid: int) -> list[int]:
    below = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        below += [int(child), *processes_below(int(child))]
    return below


def test_a_search_finds_the_best_trial_by_its_rungs(tmp_path):
    done = start(tmp_path)
    output, _ = done.communicate(timeout=300)
    assert done.returncode == 0, output
    result = result_of(tmp_path)
    assert len(result["trials"]) == 8
    targets = sorted(trial["target"] for trial in result["trials"])
    assert targets == [4, 4, 4, 4, 8, 8, 16, 16], output
    best = result["best"]
    assert best["metric"] == min(trial["best"]["metric"] for trial in result["trials"])
    assert f"trial {best['trial']}" in output.splitlines()[-8]
    # Nothing is left to do.
    again = start(tmp_path)
    assert again.communicate(timeout=60)[0].count("trains to") == 0
    assert result_of(tmp_path) == result


def test_kills_of_the_search_of_trials_and_of_ranks_change_nothing(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    killed.mkdir()
    undisturbed = start(whole)
    assert undisturbed.communicate(timeout=300) and undisturbed.returncode == 0
    draw = random.Random(3)
    kills = 0
    for _ in range(40):
        search = start(killed)
        deadline = time.monotonic() + draw.uniform(0.3, 2.5)
        while time.monotonic() < deadline and search.poll() is None:
            time.sleep(0.02)
        while search.poll() is None and kills < 10:
            try:
                victims = [search.pid, *processes_below(search.pid)]
                victim = draw.choice(victims)
                os.kill(victim, signal.SIGKILL)
            except (FileNotFoundError, ProcessLookupError):
                continue
            kills += 1
            if victim == search.pid:
                break
            time.sleep(draw.uniform(0.2, 1.5))
        output = search.communicate(timeout=300)[0]
        if search.returncode == 0:
            break
        assert search.returncode == -signal.SIGKILL, output
    assert kills == 10
    assert result_of(killed) == result_of(whole)


def test_a_fault_names_its_place(tmp_path):
    (tmp_path / "bad.yaml").write_text("name: x\nsearcher: {name: single, metric: loss, max_length: {batches: 1}}\nbind_mounts: []\n")
    words = [PROGRAMS / "ds_experiment", tmp_path / "bad.yaml"]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "bad.yaml line 3: bind_mounts" in done.stderr
