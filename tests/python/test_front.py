"""What a script sees of the package in one process: arguments, configs, errors, groups, schedules, accumulation."""
import base64
import collections
import inspect
import json
import math
import sys
import types

import pytest
import torch
import torch.nn.functional as F

import deepspeed
from deepspeed.ops.adam import DeepSpeedCPUAdam
from deepspeed.runtime.lr_schedules import OneCycle, WarmupLR
from deepspeed.runtime.zero.utils import ZeRORuntimeException

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
    with pytest.raises(ValueError, match="mpu: object has no get_model_parallel_group"):
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


def test_a_warm_up_of_no_steps_is_for_configs_alone():
    config = {**CONFIG, "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.5, "warmup_num_steps": 0}}}
    engine = make(config)[0]
    for _ in range(3):
        step(engine)
    assert engine.get_lr() == [0.5]
    with pytest.raises(ValueError, match="warmup_num_steps is 0, expected a whole number of at least 1"):
        WarmupLR(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0), warmup_num_steps=0)


def test_an_unknown_warm_up_is_logarithmic():
    optimizers = [torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0) for _ in range(2)]
    unknown, known = (WarmupLR(mine, warmup_num_steps=4, warmup_type=kind) for mine, kind in zip(optimizers, ("cubic", "log")))
    assert unknown.warmup_type == "log"
    for schedule in (unknown, known):
        schedule.step()
        schedule.step()
    assert unknown.get_last_lr() == known.get_last_lr() and 0 < unknown.get_last_lr()[0] < 1


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


class KeptLayers(torch.nn.Linear):
    """Notes the keyword arguments of its forward."""

    def forward(self, inputs, **options):
        self.options = options
        return super().forward(inputs)


def test_forward_is_told_which_part_of_the_layers_progressive_layer_drop_keeps():
    engine = make({**CONFIG, "progressive_layer_drop": {"enabled": True, "theta": 0.5, "gamma": 0.1}}, KeptLayers(4, 3))[0]
    seen = []
    for _ in range(3):
        step(engine)
        assert engine.module.options["progressive_layer_drop"] is True
        seen.append(engine.module.options["pld_theta"])
    assert seen == pytest.approx([1.0, 1.0, 0.5 * math.exp(-0.1) + 0.5])
    assert engine.get_pld_theta() == pytest.approx(0.5 * math.exp(-0.2) + 0.5)
    plain = make(model=KeptLayers(4, 3))[0]
    step(plain)
    assert plain.module.options == {} and plain.get_pld_theta() is None


def test_the_optimizers_of_mup_scale_rates_by_width(monkeypatch):
    def mu_sgd(params, lr, momentum=0.0):
        """Is as mup's: the weight of a wide layer gets a group and a rate of its own."""
        wide = [param for param in params if param.ndim == 2]
        rest = [param for param in params if param.ndim != 2]
        return torch.optim.SGD([{"params": wide, "lr": lr / 4}, {"params": rest}], lr=lr, momentum=momentum)

    monkeypatch.setitem(sys.modules, "mup", types.SimpleNamespace(MuSGD=mu_sgd))
    config = {"train_micro_batch_size_per_gpu": 2, "gradient_clipping": 0, "optimizer": {"type": "MuSGD", "params": {"lr": 0.1}}}
    engine, optimizer, _, _ = make(config)
    assert [group["lr"] for group in optimizer.param_groups] == [0.025, 0.1]
    before = [param.detach().clone() for param in engine.module.parameters()]
    engine.backward(engine(torch.ones(2, 4)).sum())
    engine.step()
    moved = [(old - new).abs().max().item() for old, new in zip(before, engine.module.parameters())]
    assert moved == pytest.approx([0.05, 0.2])
    monkeypatch.setitem(sys.modules, "mup", None)
    with pytest.raises(deepspeed.ConfigError, match="optimizer.type: MuSGD needs the package mup"):
        make(config)


def test_the_timer_of_the_throughput_counts_from_where_it_is_asked_for():
    engine = make({**CONFIG, "gradient_accumulation_steps": 2})[0]
    step(engine)
    timer = engine.tput_timer
    assert timer.batch_size == 4 and timer.micro_step_count == 0
    for _ in range(2 * (timer.start_step + 1) - 1):
        step(engine)
    assert timer.micro_step_count == 5 and timer.global_step_count == 3
    assert timer.avg_samples_per_sec() > 0 and engine.tput_timer is timer


def test_a_module_gets_the_types_that_the_config_says():
    engine = make({**CONFIG, "bf16": {"enabled": True}, "data_types": {"buffer_dtype": "fp16"}})[0]
    engine._assert_valid_mixed_precision_config()
    assert engine._mixed_precision_dtypes() == (torch.bfloat16, torch.float16)
    other = torch.nn.BatchNorm1d(2)
    engine.module = other
    engine._cast_module_mixed_precision(*engine._mixed_precision_dtypes(), False)
    kinds = {name: tensor.dtype for name, tensor in other.state_dict().items()}
    assert kinds == {
        "weight": torch.bfloat16,
        "bias": torch.bfloat16,
        "running_mean": torch.float16,
        "running_var": torch.float16,
        "num_batches_tracked": torch.int64,
    }


def test_losses_are_scaled_one_number_at_a_time():
    engine = make({**CONFIG, "zero_optimization": {"stage": 1}, "fp16": {"enabled": True, "loss_scale": 8}})[0]
    assert engine.optimizer.needs_scaler() and engine.scale(torch.ones(1)).item() == 8
    with pytest.raises(AssertionError, match=r"shape \(2,\), expected a scalar tensor"):
        engine.scale(torch.ones(2))
    plain = make({**CONFIG, "zero_optimization": {"stage": 1}})[0]
    assert not plain.optimizer.needs_scaler()


class Combined(torch.optim.Optimizer):
    """Steps two optimizers that hold the parameters themselves."""

    def __init__(self, dense, sparse):
        super().__init__([*dense, *sparse], {})
        self.parts = [torch.optim.Adam(dense, lr=0.1), torch.optim.SparseAdam(sparse, lr=0.1)]

    def step(self, closure=None):
        for part in self.parts:
            part.step()


class Bag(torch.nn.Module):
    """Is linear over a sum of embeddings."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.embedding = torch.nn.EmbeddingBag(6, 4, mode="sum", sparse=True)
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, tokens):
        return self.linear(self.embedding(tokens))


TOKENS = torch.tensor([[1, 2], [2, 5]])


def final_embedding(model, step_once):
    for _ in range(3):
        step_once(F.mse_loss(model(TOKENS), torch.zeros(2, 3)))
    return model.embedding.weight.detach().clone()


@pytest.mark.parametrize("is_combined", [False, True])
def test_optimizers_of_the_script_get_sparse_gradients(is_combined):
    def optimizer_of(model):
        sparse, dense = [model.embedding.weight], list(model.linear.parameters())
        for param in dense:
            param.requires_grad_(is_combined)
        return Combined(dense, sparse) if is_combined else torch.optim.SparseAdam(sparse, lr=0.1)

    plain, model = Bag(), Bag()
    optimizer = optimizer_of(plain)

    def step_plain(loss):
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    expected = final_embedding(plain, step_plain)
    config = {"train_micro_batch_size_per_gpu": 2, "sparse_gradients": True, "gradient_clipping": 0}
    engine = make(config, model, optimizer=optimizer_of(model))[0]

    def step_engine(loss):
        engine.backward(loss)
        engine.step()

    found = final_embedding(engine, step_engine)
    torch.testing.assert_close(found, expected)
    assert torch.equal(found[[0, 3, 4]], Bag().embedding.weight[[0, 3, 4]])


def test_an_optimizer_that_steps_past_its_groups_is_warned_of(caplog):
    model = Bag()
    optimizer = Combined(list(model.linear.parameters()), [model.embedding.weight])
    config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 1}, "zero_allow_untested_optimizer": True}
    engine = make(config, model, optimizer=optimizer)[0]
    engine.backward(engine(TOKENS).sum())
    engine.step()
    assert "Combined.step() changed nothing" in caplog.text


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


class Halving:
    """Is a schedule with the least that an engine asks for."""

    def __init__(self, optimizer):
        self.optimizer, self.steps = optimizer, 0

    def step(self):
        self.steps += 1
        for group in self.optimizer.param_groups:
            group["lr"] /= 2

    def state_dict(self):
        return {"steps": self.steps}

    def load_state_dict(self, state):
        self.steps = state["steps"]


@pytest.mark.parametrize("config", [{}, {"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 50}}}])
def test_a_schedule_that_a_script_puts_into_the_engine_is_stepped_and_saved(config, tmp_path):
    engine, optimizer, _, before = make({**CONFIG, **config})
    optimizer.param_groups[0]["lr"] = 0.8
    began_at = None if before is None else before.last_batch_iteration
    engine.lr_scheduler = own = Halving(optimizer)
    for _ in range(3):
        step(engine)
    assert engine.lr_scheduler is own and own.steps == 3 and engine.get_lr() == [0.1]
    assert before is None or before.last_batch_iteration == began_at
    engine.save_checkpoint(tmp_path)
    own.steps = 0
    engine.load_checkpoint(tmp_path)
    assert own.steps == 3
    engine.lr_scheduler = None
    step(engine)
    assert own.steps == 3 and engine.get_lr() == [0.1] and engine.lr_scheduler is None


def test_a_schedule_without_a_step_is_no_schedule():
    engine = make()[0]
    with pytest.raises(deepspeed.DeepSpeedError, match=r"lr_scheduler: a dict has no step\(\)"):
        engine.lr_scheduler = {}


def test_data_of_initialize_is_loaded():
    data = [(torch.ones(4) * index, torch.zeros(3)) for index in range(8)]
    engine, _, loader, _ = make(training_data=data)
    seen = [inputs for inputs, _ in loader]
    assert len(loader) == len(seen) == 4 and seen[0].shape == (2, 4)
    assert sorted(torch.cat(seen)[:, 0].tolist()) == list(range(8))


@pytest.mark.parametrize("seed", [None, 3])
def test_the_order_of_data_follows_from_the_seed_of_the_config_alone(seed):
    config = CONFIG if seed is None else {**CONFIG, "seed": seed}
    data = [(torch.ones(4) * index, torch.zeros(3)) for index in range(8)]
    expected = list(torch.utils.data.DistributedSampler(data, num_replicas=1, rank=0, seed=seed or 0))
    for number in (1, 2):
        torch.manual_seed(number)
        loader = make(config, training_data=data)[2]
        assert torch.cat([inputs for inputs, _ in loader])[:, 0].tolist() == expected


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


def test_a_backward_of_the_script_is_refused_without_zero_as_in_deepspeed():
    engine = make()[0]
    inputs = torch.ones(2, 4, requires_grad=True)
    loss = engine(inputs).sum()
    with pytest.raises(RuntimeError, match=r"Direct calls to tensor.backward.* call engine.backward\(loss\)"):
        loss.backward()
    (grad,) = torch.autograd.grad(engine(inputs).sum(), inputs)  # it reaches no parameter
    assert grad.shape == inputs.shape
    engine.backward(engine(inputs).sum())
    engine.step()


def test_coalescing_is_refused_beside_sums_in_fp32_as_in_deepspeed():
    sums = {"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}}
    engine = make({**CONFIG, **sums, "zero_optimization": {"stage": 1}})[0]
    with pytest.raises(NotImplementedError, match="optimizer wrapper BF16_Optimizer.* set stage 2"):
        with engine.coalesce_grad_reduction():
            pass


def test_an_offloaded_optimizer_of_the_script_is_one_for_the_host_unless_any_will_do():
    config = {**CONFIG, "zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu"}}}
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.Adam(model.parameters())
    with pytest.raises(ZeRORuntimeException, match='class Adam.* expected DeepSpeedCPUAdam.*"zero_force_ds_cpu_optimizer": false'):
        make(config, model, optimizer=optimizer)
    with pytest.raises(ZeRORuntimeException, match="got 'cpu'"):  # as older configs spell it
        make({**CONFIG, "zero_optimization": {"stage": 1, "cpu_offload": True}}, model, optimizer=optimizer)
    step(make({**config, "zero_force_ds_cpu_optimizer": False}, model, optimizer=optimizer)[0])
    host = torch.nn.Linear(4, 3)
    step(make(config, host, optimizer=DeepSpeedCPUAdam(host.parameters()))[0])


def test_muon_with_reduce_scatter_by_name_refuses_offload_as_in_deepspeed():
    zero = {"stage": 1, "offload_optimizer": {"device": "cpu"}}
    config = {**CONFIG, "optimizer": {"type": "Muon", "params": {"lr": 0.01}}, "zero_optimization": {**zero, "reduce_scatter": True}}
    with pytest.raises(ValueError, match="reduce_scatter.*Muon with reduce scatter does not support optimizer offload; leave the key out"):
        make(config)
    step(make({**config, "zero_optimization": zero})[0])


@pytest.mark.parametrize("offload", [{"offload_optimizer": {"device": "cpu"}}, {"cpu_offload": True}])
def test_an_optimizer_of_mup_is_the_configs_and_goes_with_offload(offload, monkeypatch):
    package = types.SimpleNamespace(MuAdam=lambda params, **options: torch.optim.Adam(params, **options))
    monkeypatch.setitem(sys.modules, "mup", package)
    config = {**CONFIG, "optimizer": {"type": "MuAdam", "params": {"lr": 0.01}}, "zero_optimization": {"stage": 2, **offload}}
    engine = make(config)[0]
    assert isinstance(engine.optimizer.optimizer, torch.optim.Adam)
    assert step(engine) > step(engine)


@pytest.mark.parametrize("stage", [0, 3])
def test_buffers_that_stay_in_fp32_beside_bf16_are_named_where_forward_refuses_them(stage):
    config = {**CONFIG, "bf16": {"enabled": True}, "zero_optimization": {"stage": stage}}
    images = torch.ones(2, 3, 4, 4, dtype=torch.bfloat16)

    def engine_of(more):
        model = torch.nn.Sequential(torch.nn.Conv2d(3, 2, 3), torch.nn.BatchNorm2d(2))
        return deepspeed.initialize(model=model, model_parameters=model.parameters(), config={**config, **more})[0]

    with pytest.raises(deepspeed.DeepSpeedError, match="'1.running_mean' is Float.*data_types.buffer_dtype to .bf16."):
        engine_of({})(images)
    assert engine_of({"data_types": {"buffer_dtype": "bf16"}})(images).shape == (2, 2, 2, 2)
