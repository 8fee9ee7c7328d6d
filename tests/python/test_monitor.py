"""Monitors: CSV files of the core, and those whose packages stand-ins take the place of."""

import csv
import logging
import sys
import types

import pytest
import torch
import torch.nn.functional as F

import deepspeed
from deepspeed.monitor.config import DeepSpeedMonitorConfig, get_monitor_config
from deepspeed.pipe import PipelineModule
from deepspeed.runtime.config import DeepSpeedConfig
from one_engine import CONFIG, make, step

LR, SCALE = "Train/Samples/lr", "Train/Samples/loss_scale"


def rows(folder, name):
    with open(folder / "job" / f"{name}.csv") as file:
        return list(csv.reader(file))


def with_csv(folder, **more):
    return {**CONFIG, "csv_monitor": {"enabled": True, "output_path": str(folder), "job_name": "job"}, **more}


def test_writes_the_rate_after_each_update_of_a_scripts_schedule(tmp_path):
    engine = make(
        with_csv(tmp_path, gradient_accumulation_steps=2),
        lr_scheduler=lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda count: 1 / (1 + count)),
    )[0]
    for _ in range(6):
        step(engine)
    assert engine.monitor.enabled
    engine.monitor.write_events([("Eval/perplexity", torch.tensor(4.5), engine.global_samples)])
    header, *found = rows(tmp_path, "Train_Samples_lr")
    assert header == ["step", "lr"] and [int(samples) for samples, _ in found] == [4, 8, 12]
    assert [float(value) for _, value in found] == pytest.approx([0.005, 0.01 / 3, 0.0025])
    assert rows(tmp_path, "Eval_perplexity") == [["step", "perplexity"], ["12", "4.5"]]


def test_writes_a_pipelines_losses(tmp_path):
    deepspeed.init_distributed()
    model = PipelineModule([torch.nn.Linear(4, 3)], num_stages=1, loss_fn=F.mse_loss)
    engine = make(with_csv(tmp_path), model=model)[0]
    batch = torch.ones(2, 4), torch.zeros(2, 3)
    loss = engine.train_batch(iter([batch])).item()
    evaluated = engine.eval_batch(iter([batch])).item()
    assert rows(tmp_path, "Train_Samples_train_loss")[1] == ["2", str(loss)]
    assert float(rows(tmp_path, "Train_Samples_eval_loss")[1][1]) == evaluated
    assert rows(tmp_path, "Train_Samples_lr")[1] == ["2", "0.01"]


def test_logs_a_failing_disk_once_and_trains_on(tmp_path, caplog):
    engine = make(with_csv(tmp_path))[0]
    (tmp_path / "job" / "Train_Samples_lr.csv").mkdir()
    deepspeed.logger.addHandler(caplog.handler)
    try:
        for _ in range(2):
            step(engine)
    finally:
        deepspeed.logger.removeHandler(caplog.handler)
    told = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert engine.global_steps == 2 and len(told) == 1 and "Train_Samples_lr.csv" in told[0].getMessage()


@pytest.fixture
def packages(monkeypatch):
    """Puts modules in the place of packages that write to services, and returns what they are told."""
    told = {"tensorboard": [], "wandb": [], "comet": []}

    class SummaryWriter:
        def __init__(self, log_dir):
            self.log_dir = log_dir

        def add_scalar(self, *event):
            told["tensorboard"].append((self.log_dir, *event))

        def flush(self):
            told["tensorboard"].append("flush")

    experiment = types.SimpleNamespace(
        set_name=lambda name: told["comet"].append(name),
        log_metric=lambda name, value, step: told["comet"].append((name, value, step)),
    )
    wandb = types.SimpleNamespace(
        init=lambda **arguments: told["wandb"].append(arguments),
        log=lambda data, step=None, commit=None: told["wandb"].append((data, step)),
    )
    monkeypatch.setitem(sys.modules, "tensorboard", types.ModuleType("tensorboard"))
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", types.SimpleNamespace(SummaryWriter=SummaryWriter))
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setitem(sys.modules, "comet_ml", types.SimpleNamespace(__version__="3.50.1", start=lambda **given: experiment))
    return told


def test_sends_services_what_files_get(packages):
    engine = make(
        {
            **CONFIG,
            "fp16": {"enabled": True, "initial_scale_power": 4},
            "tensorboard": {"enabled": True, "output_path": "logs"},
            "wandb": {"enabled": True, "team": "a team", "group": "a group"},
            "comet": {"enabled": True, "samples_log_interval": 4, "experiment_name": "a name"},
        }
    )[0]
    for _ in range(3):
        step(engine, torch.ones(2, 4).half())
    events = [(name, value, samples) for samples in (2, 4, 6) for name, value in ((LR, 0.01), (SCALE, 16.0))]
    expected = [("logs/DeepSpeedJobName", *event) for event in events]
    assert [event for event in packages["tensorboard"] if event != "flush"] == expected
    assert packages["wandb"][0] == {"project": "deepspeed", "group": "a group", "entity": "a team"}
    assert packages["wandb"][1:] == [({name: value}, samples) for name, value, samples in events]
    assert packages["comet"] == ["a name"] + [event for event in events if event[2] in (2, 6)]


@pytest.mark.parametrize("section, package", [("tensorboard", "tensorboard"), ("wandb", "wandb"), ("comet", "comet_ml")])
def test_names_a_missing_package(section, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=f"section '{section}'.*{package}.*pip install"):
        make({**CONFIG, section: {"enabled": True}})


def test_names_an_old_comet(packages, monkeypatch):
    monkeypatch.setattr(sys.modules["comet_ml"], "__version__", "3.9.0")
    with pytest.raises(ImportError, match="3.9.0, expected 3.41.0"):
        make({**CONFIG, "comet": {"enabled": True}})


def test_writes_elapsed_times_with_wall_clock_breakdown(tmp_path):
    engine = make(with_csv(tmp_path, wall_clock_breakdown=True))[0]
    for _ in range(2):
        step(engine)
    for part in ("forward", "backward", "backward_inner", "backward_allreduce", "step"):
        _, *found = rows(tmp_path, f"Train_Samples_elapsed_time_ms_{part}")
        assert len(found) == 2 and all(float(value) >= 0 for _, value in found)


def test_drops_events_without_monitors():
    engine = make()[0]
    assert not engine.monitor.enabled
    engine.monitor.write_events([("a", 1.0, 1)])


def test_reads_sections_as_models():
    config = DeepSpeedConfig({"train_batch_size": 2, "tensorboard": {"enabled": True, "job_name": "job"}, "wandb": {}})
    found = config.monitor_config
    assert found.enabled and found.tensorboard.job_name == "job" and found.comet.samples_log_interval == 100
    assert not get_monitor_config({}).enabled and DeepSpeedMonitorConfig().csv_monitor.output_path == ""
    with pytest.raises(ValueError, match="folder"):
        get_monitor_config({"csv_monitor": {"folder": "x"}})
