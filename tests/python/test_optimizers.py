"""Optimizers of the script and of the config: groups, classes, what is refused, in one process."""

import sys
import types
import unittest.mock

import pytest
import torch
import torch.nn.functional as F

import deepspeed
from deepspeed.ops.adam import DeepSpeedCPUAdam
from deepspeed.ops.lamb import FusedLamb
from deepspeed.runtime.zero.utils import ZeRORuntimeException
from one_engine import CONFIG, make, step


def test_keeps_the_clients_own_dicts_as_groups():
    model = torch.nn.Linear(4, 3)
    groups = [{"params": [model.weight], "lr": 0.5, "name": "w"}, {"params": [model.bias]}]
    engine, optimizer, _, _ = make(model=model, model_parameters=groups)
    assert optimizer.param_groups[0] is groups[0] and groups[0]["name"] == "w"
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 0.01]
    before = model.bias.detach().clone()
    optimizer.param_groups[1]["lr"] = 0.0
    step(engine)
    assert torch.equal(model.bias, before) and not torch.equal(model.weight, before)


@pytest.mark.parametrize("kind", [None, torch.optim.AdamW, torch.optim.NAdam])
def test_leaves_out_groups_without_parameters_as_deepspeed_does(kind):
    model = torch.nn.Linear(4, 3)
    groups = [{"params": [], "lr": 0.5}, {"params": list(model.parameters()), "lr": 0.25}]
    config = {**CONFIG, "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 4, "warmup_max_lr": 0.125}}}
    arguments = {"model_parameters": groups} if kind is None else {"optimizer": kind(groups)}
    if kind is not None:
        del config["optimizer"]
    engine, optimizer, _, schedule = make(config, model=model, **arguments)
    for _ in range(6):
        step(engine)
    assert [group["lr"] for group in optimizer.param_groups] == engine.get_lr() == schedule.get_last_lr() == [0.125]
    assert [group["lr"] for group in optimizer.optimizer.param_groups] == [0.125]
    assert len(optimizer.param_groups[0]["params"]) == 2


def test_tells_the_last_updates_overflow():
    engine, optimizer, _, _ = make({**CONFIG, "gradient_accumulation_steps": 2, "fp16": {"enabled": True, "initial_scale_power": 8}})
    for _ in range(3):
        step(engine, torch.ones(2, 4).half())
        assert optimizer.overflow is False


def test_scales_rates_by_width_with_mups_optimizers(monkeypatch):
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
def test_gives_a_scripts_optimizers_sparse_gradients(is_combined):
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


def test_warns_of_an_optimizer_that_steps_past_its_groups(caplog):
    model = Bag()
    optimizer = Combined(list(model.linear.parameters()), [model.embedding.weight])
    config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 1}, "zero_allow_untested_optimizer": True}
    engine = make(config, model, optimizer=optimizer)[0]
    engine.backward(engine(TOKENS).sum())
    engine.step()
    assert "Combined.step() changed nothing" in caplog.text


def test_refuses_add_param_group_with_the_way_out():
    optimizer = make()[1]
    with pytest.raises(deepspeed.NotSupportedError, match="pass all groups"):
        optimizer.add_param_group({"params": []})


def test_returns_an_optimizer_of_deepspeeds_class():
    from deepspeed.ops.adam import DeepSpeedCPUAdam, FusedAdam

    def made(params=None, **sections):
        section = {"type": "Adam", "params": {"lr": 0.01, **(params or {})}}
        return make({**CONFIG, "optimizer": section, **sections})[1]

    assert isinstance(made(), FusedAdam) and made().adam_w_mode
    assert isinstance(made({"torch_adam": True, "adam_w_mode": False}), torch.optim.Adam)
    zero = {"stage": 2, "offload_optimizer": {"device": "cpu"}}
    partitioned = made(zero_optimization=zero)
    assert isinstance(partitioned, deepspeed.ZeROOptimizer) and type(partitioned.optimizer) is DeepSpeedCPUAdam
    assert [made({"adam_w_mode": decouples}, zero_optimization=zero).optimizer.adam_w_mode for decouples in (True, False)] == [True, False]
    assert [made({"adam_w_mode": decouples}).optimizer.adam_w_mode for decouples in (True, False)] == [1, 0]
    short = {"enabled": True, "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}
    assert partitioned.optimizer.fp32_optimizer_states and not made(zero_optimization=zero, bf16=short).optimizer.fp32_optimizer_states
    model = torch.nn.Linear(4, 3)
    own = torch.optim.Adam(model.parameters(), lr=0.01)
    engine, optimizer, _, _ = make({"train_micro_batch_size_per_gpu": 2}, model=model, optimizer=own)
    assert optimizer == own and isinstance(optimizer, torch.optim.Adam)
    assert step(engine) > step(engine)


def test_shows_muons_group_of_matrices_and_one_for_adam():
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
    own, _ = run(
        lambda model: [
            {"params": [model.weight], "use_muon": True, "lr": 0.04},
            {"params": [model.bias], "use_muon": False, "lr": 0.001},
        ]
    )
    assert own == losses
    halved, _ = run(lr_scheduler=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5))
    assert halved[:2] == losses[:2] and halved[2] != losses[2]


def test_requires_a_host_optimizer_for_offload_unless_any_will_do():
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


def test_refuses_offload_for_muon_with_reduce_scatter_as_in_deepspeed():
    zero = {"stage": 1, "offload_optimizer": {"device": "cpu"}}
    config = {**CONFIG, "optimizer": {"type": "Muon", "params": {"lr": 0.01}}, "zero_optimization": {**zero, "reduce_scatter": True}}
    with pytest.raises(ValueError, match="reduce_scatter.*Muon with reduce scatter does not support optimizer offload; leave the key out"):
        make(config)
    step(make({**config, "zero_optimization": zero})[0])


@pytest.mark.parametrize("offload", [{"offload_optimizer": {"device": "cpu"}}, {"cpu_offload": True}])
def test_offloads_the_configs_optimizer_of_mup(offload, monkeypatch):
    package = types.SimpleNamespace(MuAdam=lambda params, **options: torch.optim.Adam(params, **options))
    monkeypatch.setitem(sys.modules, "mup", package)
    config = {**CONFIG, "optimizer": {"type": "MuAdam", "params": {"lr": 0.01}}, "zero_optimization": {"stage": 2, **offload}}
    engine = make(config)[0]
    assert isinstance(engine.optimizer.optimizer, torch.optim.Adam)
    assert step(engine) > step(engine)


@pytest.mark.parametrize("stage, name", [(0, "Lamb"), (1, "Lamb"), (3, "Lamb"), (0, "OneBitLamb")])
def test_returns_lambs_trust_ratios_of_the_engines_step(stage, name):
    config = {**CONFIG, "zero_optimization": {"stage": stage}, "zero_allow_untested_optimizer": True}
    engine, optimizer, _, _ = make({**config, "optimizer": {"type": name, "params": {"lr": 0.01}}})
    assert optimizer.optimizer.get_lamb_coeffs() == []
    step(engine)
    ratios = optimizer.optimizer.get_lamb_coeffs()
    assert len(ratios) == len(list(engine.module.parameters())) and all(0.01 <= ratio <= 10 for ratio in ratios)
    kept = list(ratios)
    step(engine)
    assert ratios == kept != optimizer.optimizer.get_lamb_coeffs(), "the list that was returned stays"
    model = torch.nn.Linear(4, 3)
    client = FusedLamb(model.parameters(), lr=0.01)
    of_client, _, _, _ = make(config, model=model, optimizer=client)
    step(of_client)
    assert len(client.get_lamb_coeffs()) == 2


def straight(make_optimizer, make_schedule, steps=4):
    """Is what torch alone does: the weights after each step."""
    torch.manual_seed(3)
    model = torch.nn.Linear(4, 3)
    optimizer = make_optimizer(model.parameters())
    schedule = make_schedule(optimizer) if make_schedule else None
    weights = []
    for number in range(steps):
        F.mse_loss(model(torch.ones(2, 4) / (1 + number)), torch.zeros(2, 3)).backward()
        optimizer.step()
        optimizer.zero_grad()
        if schedule:
            schedule.step()
        weights.append(model.weight.detach().clone())
    return weights


def by_engine(config, steps=4, make_optimizer=None, **arguments):
    torch.manual_seed(3)
    model = torch.nn.Linear(4, 3)
    if make_optimizer:
        arguments["optimizer"] = make_optimizer(model.parameters())
    config = {**config, "zero_allow_untested_optimizer": True, "gradient_clipping": 0}
    engine, _, _, _ = make(config, model=model, **arguments)
    weights = []
    for number in range(steps):
        step(engine, torch.ones(2, 4) / (1 + number))
        with deepspeed.zero.GatheredParameters(list(model.parameters())):
            weights.append(model.weight.detach().clone())
    return weights


def expect_weights(found, expected):
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("stage", [0, 1, 3])
@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
@pytest.mark.parametrize(
    "options", [{}, {"amsgrad": True}, {"decoupled_weight_decay": True}, {"maximize": True}], ids=["plain", "amsgrad", "decoupled", "up"]
)
def test_steps_a_scripts_adam_as_torch(stage, kind, options):
    if kind is torch.optim.AdamW and "decoupled_weight_decay" in options:
        pytest.skip("AdamW has no such option")

    def make_optimizer(params):
        return kind(params, lr=0.05, weight_decay=0.5, eps=1e-3, **options)

    found = by_engine({"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": stage}}, make_optimizer=make_optimizer)
    expect_weights(found, straight(make_optimizer, None))


@pytest.mark.parametrize("stage", [0, 1, 3])
def test_uses_a_constructors_states_in_the_engines_steps(stage):
    def make_optimizer(params):
        return torch.optim.Adagrad(params, lr=0.05, initial_accumulator_value=0.1)

    found = by_engine({"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": stage}}, make_optimizer=make_optimizer)
    expect_weights(found, straight(make_optimizer, None))


@pytest.mark.parametrize("stage", [0, 2])
def test_makes_any_class_of_torch_that_a_config_names(stage):
    config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": stage}}
    config["optimizer"] = {"type": "RAdam", "params": {"lr": 0.05, "betas": [0.8, 0.9]}}
    expect_weights(by_engine(config), straight(lambda params: torch.optim.RAdam(params, lr=0.05, betas=(0.8, 0.9)), None))
    config["optimizer"]["params"]["speed"] = 3
    with pytest.raises(deepspeed.ConfigError, match="optimizer.params: RAdam does not take them: .*speed"):
        by_engine(config)
    with pytest.raises(deepspeed.ConfigError, match="zero_allow_untested_optimizer"):
        make({"train_batch_size": 2, "zero_optimization": {"stage": 1}, "optimizer": {"type": "Adadelta", "params": {"lr": 0.1}}})


class OtherBetas(torch.optim.lr_scheduler.LambdaLR):
    """Is a schedule that writes more than rates, in its constructor already."""

    def __init__(self, optimizer):
        for group in optimizer.param_groups:
            group["betas"], group["weight_decay"] = (0.5, 0.9), 0.7
        super().__init__(optimizer, lambda count: 1 / (1 + count))


@pytest.mark.parametrize("stage", [0, 1, 3])
@pytest.mark.parametrize("schedule", [OtherBetas, lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=6)])
def test_applies_what_a_schedules_constructor_writes_from_the_first_step_on(stage, schedule):
    def make_optimizer(params):
        return torch.optim.AdamW(params, lr=0.05, eps=1e-3, weight_decay=0.01)

    expected = straight(make_optimizer, schedule)
    config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": stage}}
    expect_weights(by_engine(config, make_optimizer=make_optimizer, lr_scheduler=schedule), expected)
    config["optimizer"] = {"type": "AdamW", "params": {"lr": 0.05, "eps": 1e-3, "weight_decay": 0.01}}
    expect_weights(by_engine(config, lr_scheduler=schedule), expected)


@pytest.mark.parametrize("stage", [0, 1, 3])
def test_resumes_another_optimizer_with_its_groups_options(stage, tmp_path):
    def make_engine(weight_decay):
        torch.manual_seed(3)
        model = torch.nn.Linear(4, 1)  # 5 elements, which the core's memory has more room than
        client = torch.optim.RMSprop(model.parameters(), lr=0.1, momentum=0.5, weight_decay=weight_decay)
        config = {"train_micro_batch_size_per_gpu": 2, "zero_allow_untested_optimizer": True, "zero_optimization": {"stage": stage}}
        return make(config, model=model, optimizer=client)[0]

    def losses_of(engine):
        losses = []
        for _ in range(3):
            losses.append(engine(torch.ones(2, 4)).square().sum())
            engine.backward(losses[-1])
            engine.step()
        return [loss.item() for loss in losses]

    engine = make_engine(weight_decay=0.0)
    engine.optimizer.param_groups[0].update(weight_decay=0.3, alpha=0.8)
    losses_of(engine)
    engine.save_checkpoint(str(tmp_path))
    expected = losses_of(engine)
    resumed = make_engine(weight_decay=0.1)
    resumed.load_checkpoint(str(tmp_path))
    group = resumed.optimizer.param_groups[0]
    assert (group["weight_decay"], group["alpha"], group["momentum"]) == (0.3, 0.8, 0.5)
    assert losses_of(resumed) == expected


class WithManyOptions(torch.optim.Optimizer):
    """Has options of kinds that the core does not hold, or would give back as another kind."""

    def __init__(self, params):
        super().__init__(params, dict(lr=0.1, rank=4, kind="std", on=True, scale=1e6, three=(1, 2, 3), none=None, pair=[1, 2]))

    def step(self):
        for group in self.param_groups:
            for param in group["params"]:
                param.data.add_(param.grad, alpha=-group["lr"])


def test_leaves_options_of_any_type_as_the_script_wrote_them(tmp_path):
    model = torch.nn.Linear(4, 3)
    client = WithManyOptions(model.parameters())
    given = {key: value for key, value in client.param_groups[0].items() if key != "params"}
    engine = make({"train_micro_batch_size_per_gpu": 2}, model=model, optimizer=client)[0]
    step(engine)
    engine.save_checkpoint(str(tmp_path))
    engine.load_checkpoint(str(tmp_path))
    step(engine)
    found = {key: value for key, value in client.param_groups[0].items() if key != "params"}
    assert found == given and [type(value) for value in found.values()] == [type(value) for value in given.values()]


def test_lets_the_other_operand_decide_a_comparison():
    engine, optimizer = make()[:2]
    assert optimizer == unittest.mock.ANY and unittest.mock.ANY == optimizer and optimizer != engine and optimizer == optimizer
