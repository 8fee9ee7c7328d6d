"""What an optimizer shows of its groups, masters and states, in one process: views of what the core keeps."""

import pytest
import torch

import deepspeed
from deepspeed.ops.adam import DeepSpeedCPUAdam
from deepspeed.runtime.bf16_optimizer import BF16_Optimizer
from deepspeed.runtime.fp16.fused_optimizer import FP16_Optimizer
from deepspeed.runtime.fp16.unfused_optimizer import FP16_UnfusedOptimizer
from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state


def make(stage=0, kind="Adam", optimizer=None, **config):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))
    config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": stage}, **config}
    if optimizer is None:
        config["optimizer"] = {"type": kind, "params": {"lr": 0.01}}
        return deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]
    config["zero_allow_untested_optimizer"] = True
    return deepspeed.initialize(model=model, optimizer=optimizer(model.parameters()), config=config)[0]


def train(engine, steps=2):
    for step in range(steps):
        inputs = torch.randn(2, 4, generator=torch.Generator().manual_seed(step)).to(engine._dtype)
        loss = engine(inputs).float().square().sum()
        engine.backward(loss)
        engine.step()
    return engine


def flat(engine, read):
    return torch.cat([read(param).reshape(-1) for param in engine.module.parameters()])


BF16 = {"bf16": {"enabled": True}}
FP16 = {"fp16": {"enabled": True}}


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize("config", [{}, BF16], ids=["fp32", "bf16"])
def test_shows_the_parameters_flat_masters(stage, config):
    engine = train(make(stage, **config))
    optimizer = engine.optimizer
    masters = optimizer.fp32_partitioned_groups_flat if stage == 3 else optimizer.single_partition_of_fp32_groups
    numel = sum(param.numel() for param in engine.module.parameters())
    assert torch.equal(masters[0][:numel], flat(engine, safe_get_full_fp32_param))
    params = optimizer.fp16_groups if stage == 3 else optimizer.bit16_groups
    assert all(a is b for a, b in zip(params[0], engine.module.parameters()))
    weights = optimizer.fp16_partitioned_groups_flat if stage == 3 else optimizer.bit16_groups_flat
    assert torch.equal(weights[0][:numel], masters[0][:numel].to(engine._dtype))


@pytest.mark.parametrize("stage", [1, 3])
def test_keys_states_by_flat_masters_and_follows_each_step(stage):
    engine = make(stage)
    optimizer = engine.optimizer
    assert len(optimizer.state) == 0
    for steps in (1, 2):
        train(engine, steps=1)
        (master,) = optimizer.fp32_partitioned_groups_flat if stage == 3 else optimizer.single_partition_of_fp32_groups
        state = optimizer.optimizer.state[master]
        moments = flat(engine, lambda param: safe_get_full_optimizer_state(param, "exp_avg"))
        assert state["step"] == steps and torch.equal(state["exp_avg"][: moments.numel()], moments)
    assert master in optimizer.state and torch.zeros(1) not in optimizer.state


def test_keys_states_by_parameters_without_zero():
    engine = train(make())
    for param in engine.module.parameters():
        state = engine.optimizer.state[param]
        assert state["exp_avg"].shape == param.shape
        assert torch.equal(state["exp_avg"], safe_get_full_optimizer_state(param, "exp_avg"))


@pytest.mark.parametrize("stage", [0, 2])
def test_writes_them_into_the_state_dict_of_the_optimizer_below(stage):
    engine = train(make(stage, optimizer=lambda params: torch.optim.Adam(params, lr=0.01)))
    below = engine.optimizer.optimizer
    groups = [group["params"] for group in below.param_groups]
    written = below.state_dict()
    entries = len(written["state"])
    assert entries == (4 if stage == 0 else 1) and written["param_groups"][0]["params"] == list(range(entries))
    assert float(written["state"][0]["step"]) == 2 and "exp_avg_sq" in written["state"][0]
    assert all(group["params"] is params for group, params in zip(below.param_groups, groups))


def test_writes_the_own_states_of_an_optimizer_in_python():
    engine = train(make(1, optimizer=lambda params: torch.optim.NAdam(params, lr=0.01)))
    written = engine.optimizer.optimizer.state_dict()
    assert float(written["state"][0]["step"]) == 2 and "mu_product" in written["state"][0]


def test_holds_the_masters_in_groups_between_set_and_clear():
    engine = train(make(3))
    optimizer = engine.optimizer
    params = optimizer.param_groups[0]["params"]
    optimizer._set_fp32_optimizer_param_groups()
    assert optimizer.param_groups[0]["params"][0] is optimizer.fp32_partitioned_groups_flat[0]
    optimizer._clear_fp32_optimizer_param_groups()
    assert optimizer.param_groups[0]["params"] is params


def test_shows_16_bits_without_zero():
    fused, unfused, bf16 = make(**FP16), make(kind="Lamb", **FP16), make(kind="Lamb", **BF16)
    assert isinstance(fused.optimizer, FP16_Optimizer) and fused.optimizer.fp32_groups_flat[0].dtype == torch.float32
    assert isinstance(unfused.optimizer, FP16_UnfusedOptimizer)
    shapes = [master.shape for master in unfused.optimizer.fp32_groups[0]]
    assert shapes == [param.shape for param in unfused.module.parameters()]
    assert isinstance(bf16.optimizer, FP16_UnfusedOptimizer) and bf16.optimizer.low_precision_dtype == torch.bfloat16


def test_has_a_class_for_bf16_with_sums_in_fp32_at_stage_1():
    in_fp32 = {"data_types": {"grad_accum_dtype": "fp32"}, **BF16}
    first, second = make(1, **in_fp32), make(2, **in_fp32)
    assert isinstance(first.optimizer, BF16_Optimizer) and not isinstance(second.optimizer, BF16_Optimizer)
    assert first.optimizer.bf16_groups_flat[0].dtype == torch.bfloat16
    assert first.optimizer.fp32_groups_gradients_flat == [None]
    first.backward(first(torch.ones(2, 4, dtype=torch.bfloat16)).sum())
    (gradient,) = first.optimizer.fp32_groups_gradients_flat
    assert gradient.dtype == torch.float32
    names = [name for part in first.optimizer._owned.parts() for name in part.names]
    params = dict(first.module.named_parameters())
    expected = torch.cat([deepspeed.utils.safe_get_full_grad(params[name]).flatten() for name in names])
    assert torch.equal(gradient[: len(expected)], expected) and expected.abs().min() > 0


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_refuses_bf16_states_without_an_optimizer_that_keeps_them(stage):
    config = {
        "bf16": {"enabled": True, "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True},
        "zero_optimization": {"stage": stage, "offload_optimizer": {"device": "cpu"}},
    }
    with pytest.raises(AssertionError, match="bf16_optimizer_states: got true beside a DeepSpeedCPUAdam.*fp32_optimizer_states=False"):
        make(optimizer=DeepSpeedCPUAdam, **config)
    engine = train(make(optimizer=lambda params: DeepSpeedCPUAdam(params, fp32_optimizer_states=False), **config))
    states = [states for _, states in engine.optimizer.state.items()]
    assert states and all(state["exp_avg"].dtype == torch.bfloat16 for state in states)


def test_shows_nothing_after_destroy():
    engine = train(make(1))
    engine.destroy()
    with pytest.raises(deepspeed.UsageError):
        engine.optimizer.single_partition_of_fp32_groups


def test_warns_of_a_save_in_an_open_window_and_resumes_at_its_start(tmp_path):
    engine = make(1, gradient_accumulation_steps=2)
    engine.backward(engine(torch.ones(2, 4)).sum())
    engine.step()
    engine.save_checkpoint(tmp_path)
    resumed = make(1, gradient_accumulation_steps=2)
    resumed.load_checkpoint(tmp_path)
    assert engine.micro_steps % 2 == 1 and resumed.micro_steps % 2 == 0


def test_destroys_the_engine_of_a_module_that_is_initialized_again():
    first = train(make(2))
    config = {"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "SGD", "params": {"lr": 0.1}}}
    weights = [param.detach().clone() for param in first.module.parameters()]
    second = deepspeed.initialize(model=first.module, model_parameters=first.module.parameters(), config=config)[0]
    assert all(torch.equal(a, b) for a, b in zip(weights, second.module.parameters()))
    train(second)
    with pytest.raises(deepspeed.UsageError):
        first.step()


def test_passes_the_weights_to_custom_load_fn(tmp_path):
    engine = train(make(1))
    engine.save_checkpoint(tmp_path)
    loaded = {}
    other = make(1)
    other.load_checkpoint(tmp_path, custom_load_fn=lambda src, dst: loaded.update(names=list(src), dst=dst))
    assert loaded["names"] == list(engine.module.state_dict()) and loaded["dst"] is other.module


@pytest.mark.parametrize("kind, name", [("OneBitAdam", "OnebitAdam"), ("OneBitLamb", "OnebitLamb"), ("ZeroOneAdam", "ZeroOneAdam")])
def test_gives_1_bit_optimizers_deepspeeds_classes(kind, name):
    from deepspeed.runtime.fp16.onebit.adam import OnebitAdam
    from deepspeed.runtime.fp16.onebit.lamb import OnebitLamb
    from deepspeed.runtime.fp16.onebit.zoadam import ZeroOneAdam

    engine = make(kind=kind)
    before = flat(engine, safe_get_full_fp32_param).clone()
    train(engine)
    assert not torch.equal(flat(engine, safe_get_full_fp32_param), before)
    below = engine.optimizer.optimizer
    assert type(below) in (OnebitAdam, OnebitLamb, ZeroOneAdam) and type(below).__name__ == name
    weights = [torch.zeros(1, requires_grad=True)]
    with pytest.raises(deepspeed.NotSupportedError, match=f"name {kind} as optimizer.type"):
        type(below)(weights).step()
    with pytest.raises(deepspeed.NotSupportedError, match="comm_backend_name 'mpi'"):
        type(below)(weights, comm_backend_name="mpi")


@pytest.mark.parametrize("precision", [BF16, FP16])
@pytest.mark.parametrize("stage", [0, 1, 2])
def test_updates_masters_from_weights_that_a_script_loads_or_clamps(stage, precision):
    engine = train(make(stage, **precision))
    other = {name: torch.full_like(param, 0.75) for name, param in engine.module.named_parameters()}
    engine.module.load_state_dict(other)
    assert flat(engine, safe_get_full_fp32_param).eq(0.75).all()
    with torch.no_grad():
        engine.module[0].weight.clamp_(-0.5, 0.5)
    engine.optimizer.param_groups[0]["lr"] = 0.0
    train(engine, steps=1)
    assert engine.module[0].weight.eq(0.5).all() and engine.module[1].weight.eq(0.75).all()
