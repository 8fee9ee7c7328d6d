"""What a script sees of the package in one process: arguments, configs, errors, groups, schedules, accumulation."""
import base64
import collections
import inspect
import json

import pytest
import torch
import torch.nn.functional as F

import deepspeed
from deepspeed.runtime.lr_schedules import OneCycle, WarmupLR

CONFIG = {
    "train_micro_batch_size_per_gpu": 2,
    "optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
}


def make(config=None, model=None, **arguments):
    model = model if model is not None else torch.nn.Linear(4, 3)
    if "optimizer" not in arguments:
        arguments.setdefault("model_parameters", model.parameters())
    return deepspeed.initialize(model=model, config=config if config is not None else CONFIG, **arguments)


def step(engine, inputs=None):
    loss = F.mse_loss(engine(torch.ones(2, 4) if inputs is None else inputs).float(), torch.zeros(2, 3))
    engine.backward(loss)
    engine.step()
    return loss.item()


def test_signatures_are_deepspeeds():
    names = list(inspect.signature(deepspeed.initialize).parameters)
    assert names == [
        "args", "model", "optimizer", "model_parameters", "training_data", "lr_scheduler", "distributed_port", "mpu",
        "dist_init_required", "collate_fn", "config", "mesh_param", "config_params",
    ]
    engine = make()[0]
    assert "exclude_frozen_parameters" in inspect.signature(engine.save_checkpoint).parameters
    assert list(inspect.signature(engine.load_checkpoint).parameters)[:3] == ["load_dir", "tag", "load_module_strict"]


@pytest.mark.parametrize("form", ["dict", "path", "text", "base64", "mapping"])
def test_a_config_is_given_in_each_form(form, tmp_path):
    text = json.dumps(CONFIG)
    path = tmp_path / "ds_config.json"
    path.write_text(text)
    given = {
        "dict": dict(CONFIG),
        "path": str(path),
        "text": text,
        "base64": base64.urlsafe_b64encode(text.encode()).decode(),
        "mapping": collections.UserDict(CONFIG),
    }[form]
    assert make(given)[0].train_batch_size() == 2


def test_config_errors_name_the_key_and_have_the_kinds_that_scripts_catch(tmp_path):
    for kind in (AssertionError, ValueError, RuntimeError, deepspeed.ConfigError):
        with pytest.raises(kind, match="zero_optimization.stage"):
            make({**CONFIG, "zero_optimization": {"stage": 7}})
    with pytest.raises(AssertionError, match="requires a model"):
        deepspeed.initialize(config=CONFIG)
    with pytest.raises(AssertionError, match="--deepspeed_config"):
        deepspeed.initialize(model=torch.nn.Linear(1, 1))
    path = tmp_path / "twice.json"
    path.write_text('{"train_batch_size": 1, "train_batch_size": 2}')
    with pytest.raises(ValueError, match="Duplicate keys in DeepSpeed config"):
        make(str(path))
    with pytest.raises(NotImplementedError, match="mpu"):
        make(mpu=object())


def test_autos_infinity_and_keys_of_the_script_pass(caplog):
    config = {**CONFIG, "steps_per_print": float("inf"), "gradient_clipping": "auto", "my_own_key": 1}
    config["zero_optimization"] = {"stage": 2, "reduce_bucket_size": 5e8, "allgather_bucket_size": "auto"}
    engine = make(config)[0]
    step(engine)
    assert engine.config is config and engine.zero_optimization_stage() == 2


def test_groups_are_the_clients_own_dicts():
    model = torch.nn.Linear(4, 3)
    groups = [{"params": [], "name": "none"}, {"params": [model.weight], "lr": 0.5, "name": "w"}, {"params": [model.bias]}]
    engine, optimizer, _, _ = make(model=model, model_parameters=groups)
    assert optimizer.param_groups[1] is groups[1] and groups[1]["name"] == "w"
    assert [group.get("lr") for group in optimizer.param_groups[1:]] == [0.5, 0.01]
    before = model.bias.detach().clone()
    optimizer.param_groups[2]["lr"] = 0.0
    step(engine)
    assert torch.equal(model.bias, before) and not torch.equal(model.weight, before)


def test_a_torch_schedule_drives_the_engines_rate():
    model = torch.nn.Linear(4, 3)
    client = torch.optim.AdamW(model.parameters(), lr=1.0)
    engine, optimizer, _, _ = make({"train_micro_batch_size_per_gpu": 2}, model=model, optimizer=client)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    rates = []
    for _ in range(3):
        step(engine)
        schedule.step()
        rates.append(engine.get_lr()[0])
    assert optimizer.param_groups is client.param_groups
    assert rates == [1.0, 0.5, 0.25] and client.param_groups[0]["lr"] == 0.125


def test_schedules_drive_an_optimizer_without_an_engine():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0, momentum=0.9)
    schedule = WarmupLR(optimizer, warmup_min_lr=0.0, warmup_max_lr=0.1, warmup_num_steps=4, warmup_type="linear")
    rates = []
    for _ in range(6):
        schedule.step()
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates == pytest.approx([0.0, 0.025, 0.05, 0.075, 0.1, 0.1]) or rates == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1, 0.1])
    state = schedule.state_dict()
    again = WarmupLR(optimizer, warmup_min_lr=0.0, warmup_max_lr=0.1, warmup_num_steps=4, warmup_type="linear")
    again.load_state_dict(state)
    assert again.get_last_lr() == schedule.get_last_lr()
    cycle = OneCycle(optimizer, cycle_min_lr=0.1, cycle_max_lr=0.3, cycle_first_step_size=2)
    cycle.step()
    assert 0.1 <= optimizer.param_groups[0]["lr"] <= 0.3


def final_weights(habit):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3)
    engine = make({**CONFIG, "gradient_accumulation_steps": 2, "zero_optimization": {"stage": 2}}, model=model)[0]
    for micro in range(4):
        inputs = torch.full((2, 4), 1.0 + micro)
        loss = F.mse_loss(engine(inputs), torch.zeros(2, 3))
        if habit == "boundary":  # step() only where the gradients are complete
            engine.set_gradient_accumulation_boundary(is_boundary=micro % 2 == 1)
            engine.backward(loss)
            if micro % 2 == 1:
                engine.step()
        else:
            engine.backward(loss)
            engine.step()
    assert engine.global_steps == 2
    return model.weight.detach().clone()


def test_the_habits_of_accumulation_give_the_same_weights():
    assert torch.equal(final_weights("native"), final_weights("boundary"))


def test_overflow_is_about_the_last_update():
    engine, optimizer, _, _ = make({**CONFIG, "gradient_accumulation_steps": 2, "fp16": {"enabled": True}})
    for _ in range(3):
        step(engine, torch.ones(2, 4).half())
        assert optimizer.overflow is False


def test_add_param_group_is_refused_with_the_way_out():
    optimizer = make()[1]
    with pytest.raises(deepspeed.NotSupportedError, match="pass all groups"):
        optimizer.add_param_group({"params": []})


def test_attributes_fall_back_to_the_module():
    model = torch.nn.Linear(4, 3)
    model.own = "mine"
    engine = make(model=model)[0]
    assert engine.own == "mine" and engine.weight is model.weight
    with pytest.raises(AttributeError):
        engine.nothing
    assert engine.module is model and engine.eval() is engine and not model.training


def test_the_group_may_be_destroyed_and_made_again():
    for _ in range(3):
        engine = make()[0]
        step(engine)
        del engine
        torch.distributed.destroy_process_group()


def test_data_of_initialize_is_loaded():
    data = [(torch.ones(4) * index, torch.zeros(3)) for index in range(8)]
    engine, _, loader, _ = make(training_data=data)
    seen = [inputs for inputs, _ in loader]
    assert len(loader) == len(seen) == 4 and seen[0].shape == (2, 4)
    assert sorted(torch.cat(seen)[:, 0].tolist()) == list(range(8))


class TwoLayers(torch.nn.Module):
    """Is a class of the test's own: torch itself does not compile a bare nn.Sequential."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 8), torch.nn.Linear(8, 3)

    def forward(self, inputs):
        return self.second(F.gelu(self.first(inputs)))


def losses_of(stage, backend=None):
    torch.manual_seed(0)
    engine = make({**CONFIG, "zero_optimization": {"stage": stage}}, model=TwoLayers())[0]
    if backend is not None:
        engine.compile(backend=backend)
    assert engine.is_compiled == (backend is not None)
    return [step(engine) for _ in range(4)]


class Graphs(list):
    """Is a backend that keeps the graphs it was given."""

    def __call__(self, graph, inputs):
        self.append(graph)
        return graph.forward


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_compiled_models_give_the_losses_of_eager_ones(stage):
    graphs = Graphs()
    assert losses_of(stage, graphs) == losses_of(stage) and len(graphs) == 1
    assert losses_of(stage, "aot_eager") == pytest.approx(losses_of(stage), rel=1e-6)


def test_at_stage_3_compile_warns_and_stays_eager(caplog):
    graphs = Graphs()
    losses = losses_of(3, graphs)
    assert [record.message for record in caplog.records if "compile()" in record.message] == [
        "compile(): at stage 3 the module runs eagerly, since compiled kernels cannot gather parameters"
    ]
    assert losses == losses_of(3) and not graphs


def test_the_optimizer_has_the_class_that_deepspeed_makes():
    from deepspeed.ops.adam import DeepSpeedCPUAdam, FusedAdam

    def made(params=None, **sections):
        section = {"type": "Adam", "params": {"lr": 0.01, **(params or {})}}
        return make({**CONFIG, "optimizer": section, **sections})[1]

    assert isinstance(made(), FusedAdam) and made().adam_w_mode
    assert isinstance(made({"torch_adam": True, "adam_w_mode": False}), torch.optim.Adam)
    zero = {"stage": 2, "offload_optimizer": {"device": "cpu"}}
    partitioned = made(zero_optimization=zero)
    assert isinstance(partitioned, deepspeed.ZeROOptimizer) and type(partitioned.optimizer) is DeepSpeedCPUAdam
    model = torch.nn.Linear(4, 3)
    own = torch.optim.Adam(model.parameters(), lr=0.01)
    engine, optimizer, _, _ = make({"train_micro_batch_size_per_gpu": 2}, model=model, optimizer=own)
    assert optimizer == own and isinstance(optimizer, torch.optim.Adam)
    assert step(engine) > step(engine)


def test_muon_shows_a_group_of_matrices_and_one_for_adam():
    from deepspeed.runtime.zero.muon.muon_optimizer import MuonWithAuxAdam

    def run(groups=None, **arguments):
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 3)
        config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 1}}
        if groups is None:
            config["optimizer"] = {"type": "Muon", "params": {"muon_lr": 0.04, "adam_lr": 0.001}}
        else:
            arguments["optimizer"] = MuonWithAuxAdam(groups(model))
        engine, optimizer, _, _ = make(config, model=model, **arguments)
        losses = [step(engine) for _ in range(3)]
        return losses, optimizer

    losses, optimizer = run()
    assert {group["use_muon"]: group["lr"] for group in optimizer.param_groups} == {True: 0.04, False: 0.001}
    assert type(optimizer.optimizer) is MuonWithAuxAdam and losses[2] < losses[0]
    own, _ = run(lambda model: [
        {"params": [model.weight], "use_muon": True, "lr": 0.04},
        {"params": [model.bias], "use_muon": False, "lr": 0.001},
    ])
    assert own == losses
    halved, _ = run(lr_scheduler=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5))
    assert halved[:2] == losses[:2] and halved[2] != losses[2]


def test_the_loss_scale_is_shown_as_deepspeed_does():
    engine, optimizer, _, _ = make({**CONFIG, "fp16": {"enabled": True, "initial_scale_power": 4, "loss_scale_window": 2}})
    view = optimizer.loss_scale_config
    assert (view.cur_scale, view.cur_iter, view.dynamic_loss_scale, view.scale_window) == (16, 0, True, 2)
    for _ in range(3):
        step(engine, torch.ones(2, 4, dtype=torch.half))
    assert (optimizer.loss_scaler.cur_scale, optimizer.loss_scaler.cur_iter) == (32, 3)


def test_gradients_are_scattered_in_one_collective():
    from deepspeed.runtime.comm.coalesced_collectives import reduce_scatter_coalesced

    make()
    given = [torch.arange(6.0).view(2, 3), torch.ones(1)]
    parts = reduce_scatter_coalesced(given)
    assert [part.tolist() for part in parts] == [[0, 1, 2, 3, 4, 5], [1]]


def test_a_process_alone_needs_no_port_and_leaves_a_launchers_other_numbers_aside():
    import os
    import socket
    import subprocess
    import sys

    with socket.socket() as busy:
        try:
            busy.bind(("127.0.0.1", 29500))
            busy.listen()
        except OSError:
            pass  # somebody else has it, which is as good
        program = "import deepspeed; deepspeed.init_distributed(dist_backend='gloo'); deepspeed.zero.Init().__enter__()"
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("MASTER_", "RANK", "WORLD_SIZE"))}
        done = subprocess.run([sys.executable, "-c", program], env={**kept, "LOCAL_SIZE": "2"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_schedules_keep_tensors_of_rates_and_show_their_parameters():
    def adam(lr=0.1):
        return torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=lr, betas=(0.85, 0.99))

    rate = torch.tensor(0.1, dtype=torch.float64)
    optimizer = adam(rate)
    schedule = WarmupLR(optimizer, warmup_max_lr=0.5, warmup_num_steps=2, warmup_type="linear")
    for _ in range(3):
        schedule.step()
    assert optimizer.param_groups[0]["lr"] is rate and rate.item() == 0.5
    inherited = adam(0.3)
    WarmupLR(inherited, warmup_num_steps=2).step(5)
    assert inherited.param_groups[0]["lr"] == pytest.approx(0.3)
    assert (schedule.warmup_num_steps, schedule.warmup_type) == (2, "linear")
    with pytest.raises(AttributeError, match="no_such_parameter"):
        schedule.no_such_parameter
    with pytest.raises(ValueError, match="warmup_num_steps"):
        WarmupLR(adam(), warmup_num_steps=None)
    cycle = OneCycle(adam(), cycle_min_lr=0.1, cycle_max_lr=0.2, cycle_min_mom=0.7, cycle_max_mom=0.9)
    cycle.step()
    assert cycle.get_mom() == [cycle.optimizer.param_groups[0]["betas"]] and 0.89 < cycle.get_mom()[0][0] <= 0.9
    assert OneCycle(adam(), cycle_min_lr=0.1, cycle_max_lr=0.2, cycle_momentum=False).get_mom() is None
