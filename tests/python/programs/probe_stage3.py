"""Runs the probes of this file that its arguments name, on every rank; each raises where something is wrong."""
import copy
import io
import sys
import threading

import torch
import torch.nn as nn
import torch.nn.functional as F

import deepspeed

PROBES = {}


def probe(function):
    PROBES[function.__name__] = function
    return function


class Net(nn.Module):
    """Has a tied weight, so that one parameter serves two modules."""

    def __init__(self, width=24):
        super().__init__()
        self.embed = nn.Embedding(10, width)
        self.inner = nn.Linear(width, width)
        self.outer = nn.Linear(width, 10, bias=False)
        self.outer.weight = self.embed.weight

    def forward(self, tokens):
        return self.outer(torch.tanh(self.inner(self.embed(tokens)))).mean(1)


def make_net(seed=0):
    torch.manual_seed(seed)
    return Net()


def config(stage=3, **more):
    return {
        "train_micro_batch_size_per_gpu": 4,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}},
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
        **more,
    }


def make_engine(stage=3, model=None, **more):
    model = model if model is not None else make_net()
    return deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config(stage, **more))[0]


def batch(step=0):
    generator = torch.Generator().manual_seed(100 * step + deepspeed.comm.get_rank())
    return torch.randint(0, 10, (4, 6), generator=generator), torch.randint(0, 10, (4,), generator=generator)


def step_of(engine, step=0):
    tokens, targets = batch(step)
    loss = F.cross_entropy(engine(tokens), targets)
    engine.backward(loss)
    engine.step()
    return loss.item()


def train(engine, steps=3):
    return [step_of(engine, step) for step in range(steps)]


@probe
def parameters_keep_identity_shape_and_ties():
    model = make_net()
    before = [id(param) for param in model.parameters()]
    shapes = [tuple(param.shape) for param in model.parameters()]
    engine = make_engine(model=model)
    train(engine)
    assert [id(param) for param in model.parameters()] == before
    assert [tuple(param.shape) for param in model.parameters()] == shapes
    assert model.outer.weight is model.embed.weight
    weight = model.inner.weight
    assert weight.ds_shape == weight.shape and weight.ds_numel == weight.numel()
    assert weight.partition_numel() == -(-weight.numel() // deepspeed.comm.get_world_size())
    assert weight.ds_status == deepspeed.zero.ZeroParamStatus.NOT_AVAILABLE
    assert not hasattr(nn.Parameter(torch.ones(2)), "ds_id")
    assert "partitioned" in repr(weight)


@probe
def stages_agree():
    expected = train(make_engine(0), 4)
    for stage in (1, 2, 3):
        found = train(make_engine(stage), 4)
        assert all(abs(a - b) < 1e-6 for a, b in zip(found, expected)), (stage, found, expected)


@probe
def calls_past_the_engine_see_whole_weights():
    model = make_net()
    engine = make_engine(model=model)
    tokens, _ = batch()
    with torch.no_grad():
        whole = engine(tokens)
        assert torch.equal(model(tokens), whole)
        assert model.inner(torch.ones(2, 24)).shape == (2, 24)
    with torch.inference_mode():
        assert torch.allclose(model(tokens), whole)


@probe
def checkpointed_segments_train():
    from torch.utils.checkpoint import checkpoint

    expected = train(make_engine(1))
    for use_reentrant in (False, True):
        model = make_net()
        plain = model.inner.forward
        model.inner.forward = lambda x, plain=plain, kind=use_reentrant: checkpoint(plain, x, use_reentrant=kind)
        found = train(make_engine(model=model))
        assert all(abs(a - b) < 1e-6 for a, b in zip(found, expected)), (found, expected)


@probe
def hooks_run():
    model = make_net()
    engine = make_engine(model=model)
    seen = []
    model.inner.register_forward_hook(lambda *_: seen.append("forward"))
    model.inner.register_full_backward_hook(lambda *_: seen.append("backward"))
    train(engine, 2)
    assert seen == ["forward", "backward"] * 2, seen


@probe
def writes_under_gathered_parameters_reach_all_ranks():
    model = make_net()
    make_engine(model=model)
    weight = model.inner.weight
    with deepspeed.zero.GatheredParameters(weight, modifier_rank=0):
        if deepspeed.comm.get_rank() == 0:
            nn.init.constant_(weight, 3.0)
    with deepspeed.zero.GatheredParameters([weight, None, torch.ones(1)]):
        assert torch.equal(weight.data, torch.full_like(weight.data, 3.0))
    with deepspeed.zero.GatheredParameters(model.parameters(), modifier_rank=0):
        if deepspeed.comm.get_rank() == 0:
            weight.data = torch.full((24, 24), 5.0)
    with deepspeed.zero.GatheredParameters([weight]):
        assert weight.mean() == 5.0
        kept = copy.deepcopy(weight)
        file = io.BytesIO()
        torch.save(weight, file)
    assert kept.mean() == 5.0


@probe
def an_exception_in_gathered_parameters_keeps_its_type():
    model = make_net()
    engine = make_engine(model=model)
    try:
        with deepspeed.zero.GatheredParameters(model.parameters(), modifier_rank=0):
            raise KeyError("mine")
    except KeyError:
        pass
    train(engine, 2)


@probe
def an_exception_in_forward_keeps_its_type():
    model = make_net()
    engine = make_engine(model=model)

    def fail(*_):
        raise LookupError("mine")

    handle = model.inner.register_forward_hook(fail)
    try:
        engine(batch()[0])
    except LookupError as error:
        assert "mine" in str(error)
    else:
        raise AssertionError("nothing was raised")
    handle.remove()
    train(engine, 2)


@probe
def models_are_born_partitioned():
    torch.manual_seed(5)
    expected = Net()
    torch.manual_seed(5)
    with deepspeed.zero.Init(config_dict_or_path={"zero_optimization": {"stage": 3}, "train_batch_size": "auto"}):
        model = Net()
    assert hasattr(model.inner.weight, "ds_id")
    with deepspeed.zero.GatheredParameters(list(model.parameters())):
        assert torch.equal(model.inner.weight, expected.inner.weight)
    found = train(make_engine(model=model))
    assert all(abs(a - b) < 1e-6 for a, b in zip(found, train(make_engine(1, model=expected))))


@probe
def a_model_that_is_built_is_partitioned():
    model, expected = make_net(), make_net()
    deepspeed.zero.Init(module=model, config_dict_or_path={"zero_optimization": {"stage": 3}})
    assert all(hasattr(param, "ds_id") for param in model.parameters())
    with deepspeed.zero.GatheredParameters(list(model.parameters())):
        for found, wanted in zip(model.parameters(), expected.parameters()):
            assert torch.equal(found, wanted)


@probe
def values_and_gradients_of_safe_access():
    model = make_net()
    engine = make_engine(model=model)
    tokens, targets = batch()
    engine.backward(F.cross_entropy(engine(tokens), targets))
    gradient = deepspeed.utils.safe_get_full_grad(model.inner.weight)
    assert gradient.shape == model.inner.weight.shape and gradient.abs().sum() > 0
    engine.step()
    assert deepspeed.utils.safe_get_full_fp32_param(model.inner.weight).shape == (24, 24)
    assert deepspeed.utils.safe_get_full_optimizer_state(model.inner.weight, "exp_avg").abs().sum() > 0


@probe
def training_runs_on_another_thread():
    engine = make_engine()
    losses = []
    thread = threading.Thread(target=lambda: losses.extend(train(engine)))
    thread.start()
    thread.join()
    assert losses == train(make_engine())


@probe
def two_engines_share_a_loss():
    first, second = make_engine(), make_engine(model=make_net(1))
    tokens, targets = batch()
    loss = F.cross_entropy(first(tokens) + second(tokens), targets)
    loss.backward()
    first.step()
    second.step()
    assert first.global_steps == second.global_steps == 1


@probe
def scripts_may_reduce_beside_the_engine():
    model = make_net()
    engine = make_engine(2, model=model)
    value = torch.zeros(1)
    model.inner.weight.register_hook(lambda gradient: deepspeed.comm.all_reduce(value.add_(1)) and None)
    train(engine, 4)


@probe
def conversions_that_would_replace_memory_are_refused():
    engine = make_engine()
    assert engine.to("cpu") is engine and engine.float() is engine
    for convert in (engine.half, engine.bfloat16, lambda: engine.to(torch.float64)):
        try:
            convert()
        except deepspeed.UsageError as error:
            assert "fp16 and bf16" in str(error)
        else:
            raise AssertionError("a conversion passed")


@probe
def the_consolidated_state_dict_is_whole_on_rank_0():
    model = make_net()
    engine = make_engine(model=model)
    state = engine._zero3_consolidated_16bit_state_dict()
    if deepspeed.comm.get_rank() == 0:
        assert sorted(state) == sorted(model.state_dict())
        assert state["inner.weight"].shape == (24, 24)
    else:
        assert state is None


@probe
def engines_are_freed():
    import gc
    import weakref

    engine = make_engine()
    train(engine, 1)
    alive = weakref.ref(engine)
    del engine
    gc.collect()
    assert alive() is None


@probe
def compiled_modules_run_eagerly_at_stage_3():
    model = make_net()
    engine = make_engine(model=model)
    engine.compile()
    assert engine.is_compiled
    expected = train(make_engine(1))
    assert all(abs(a - b) < 1e-6 for a, b in zip(train(engine), expected))


@probe
def numbers_of_parameters_stay_and_are_equal_on_all_ranks():
    with deepspeed.zero.Init():
        inner = nn.Linear(4, 4)
        assert hasattr(inner.weight, "ds_id"), "a submodule shows its number while the model is being built"
        model = nn.Sequential(inner, nn.Linear(4, 2))
    numbers = [param.ds_id for param in model.parameters()]
    assert len(set(numbers)) == 4
    all_ranks = [None] * deepspeed.comm.get_world_size()
    torch.distributed.all_gather_object(all_ranks, numbers)
    assert all(held == numbers for held in all_ranks)
    make_engine(model=model)
    assert [param.ds_id for param in model.parameters()] == numbers


@probe
def initialize_runs_inside_of_a_zero_init():
    with deepspeed.zero.Init():
        engine = make_engine(model=nn.Linear(4, 4))
        later = nn.Linear(4, 4)
    engine.backward(engine(torch.ones(2, 4)).sum())
    engine.step()
    assert later.weight.ds_status.name == "NOT_AVAILABLE"
    assert engine.module.weight.ds_id < later.weight.ds_id


@probe
def small_parameters_are_read_by_one_rank_while_they_are_whole():
    settings = {"stage": 3, "stage3_param_persistence_threshold": 4}
    engine = make_engine(model=nn.Linear(4, 4), zero_optimization=settings)
    loss = engine(torch.ones(2, 4)).sum()
    if deepspeed.comm.get_rank() == 0:
        assert engine.module.bias.sum().isfinite()
    engine.backward(loss)
    engine.step()
    uses = (lambda: engine.module.weight + 1, lambda: engine.module.bias.data.add_(1), lambda: engine.module.bias + 1)
    for use in uses:
        try:
            use()
        except RuntimeError:
            continue
        raise AssertionError("a parameter that is not whole was read, or a small one written, outside of a window")


@probe
def parameters_gather_and_partition_themselves():
    engine = make_engine(model=nn.Linear(4, 4))
    weight = engine.module.weight
    weight.all_gather()
    assert weight.ds_status.name == "AVAILABLE" and weight.sum().isfinite()
    assert weight.ds_summary()["id"] == weight.ds_id
    weight.partition()
    assert weight.ds_status.name == "NOT_AVAILABLE"


@probe
def generation_runs_without_hooks_on_whole_weights():
    engine = make_engine()
    tokens, _ = batch()
    expected = engine.module(tokens)
    hooks = len(engine.optimizer.parameter_offload.forward_hooks)
    with deepspeed.zero.unwrap_model_for_generation(engine):
        assert not engine.optimizer.parameter_offload.forward_hooks
        assert all(param.ds_status.name == "AVAILABLE" for param in engine.parameters())
        assert torch.equal(engine.module(tokens), expected)
    assert len(engine.optimizer.parameter_offload.forward_hooks) == hooks > 0


def main():
    deepspeed.init_distributed(dist_backend="gloo")
    for name in sys.argv[1:] or PROBES:
        PROBES[name]()
        print(f"passed {name}", flush=True)
    print('RESULT {"passed": true}')


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
