"""Probes of parameters that stage 3 has partitioned: who has them whole, and when."""

import copy
import io
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

import deepspeed
from probes import main, probe
from small_net import Net, batch, make_engine, make_net, step_of, train


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
def engines_models_and_what_python_gave_them_are_freed():
    import gc
    import weakref

    class Rate:
        """Is a schedule's formula, which the core calls."""

        def __call__(self, step):
            return 1.0 / (1 + step)

    for stage in (0, 1, 2, 3):
        model, rate = make_net(), Rate()
        client = torch.optim.NAdam(model.parameters(), lr=1e-2)  # the core steps it by calls of Python
        engine, optimizer, _, schedule = deepspeed.initialize(
            model=model,
            optimizer=client,
            lr_scheduler=lambda made, rate=rate: torch.optim.lr_scheduler.LambdaLR(made, rate),
            config={
                "train_micro_batch_size_per_gpu": 4,
                "zero_allow_untested_optimizer": True,
                "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
            },
        )
        train(engine)
        held = [weakref.ref(each) for each in (engine, model, model.inner.weight, client, optimizer, schedule, rate)]
        del engine, model, client, optimizer, schedule, rate
        gc.collect()
        assert not [type(each()).__name__ for each in held if each() is not None], stage


@probe
def compiled_modules_run_eagerly_at_stage_3():
    model = make_net()
    engine = make_engine(model=model)
    engine.compile()
    assert engine.is_compiled
    expected = train(make_engine(1))
    assert all(abs(a - b) < 1e-6 for a, b in zip(train(engine), expected))


@probe
def small_parameters_are_read_by_one_rank_while_they_are_whole():
    settings = {"stage": 3, "stage3_param_persistence_threshold": 4}
    engine = make_engine(model=nn.Linear(4, 4), zero_optimization=settings)
    loss = engine(torch.ones(2, 4)).sum()
    if deepspeed.comm.get_rank() == 0:
        assert engine.module.bias.sum().isfinite()
    engine.backward(loss)
    engine.step()
    if deepspeed.comm.get_rank() == 0:
        assert engine.module.bias.sum().isfinite()
    for use in (lambda: engine.module.weight + 1, lambda: engine.module.weight.data.add_(1)):
        try:
            use()
        except RuntimeError:
            continue
        raise AssertionError("a large parameter was read or written outside of a window")


@probe
def small_parameters_are_whole_after_saves_and_loads():
    folder = [tempfile.mkdtemp()]
    torch.distributed.broadcast_object_list(folder)
    settings = {"stage": 3, "stage3_param_persistence_threshold": 4}
    engine = make_engine(model=nn.Linear(4, 4), zero_optimization=settings)
    bias = engine.module.bias
    for write_or_read in (engine.save_checkpoint, engine.load_checkpoint):
        engine.empty_partition_cache()
        assert bias.ds_status.name == "NOT_AVAILABLE"
        write_or_read(folder[0])
        assert bias.sum().isfinite()


@probe
def parameters_gather_and_partition_themselves():
    engine = make_engine(model=nn.Linear(4, 4))
    weight = engine.module.weight
    weight.all_gather()
    assert weight.ds_status.name == "AVAILABLE" and weight.sum().isfinite()
    assert weight.ds_summary()["id"] == weight.ds_id
    weight.partition()
    assert weight.ds_status.name == "NOT_AVAILABLE"


class ByAddress(nn.Module):
    """Reads its weight past the operators, as kernels do that take addresses."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.arange(6.0))
        self.statuses = []

    def forward(self, x):
        self.statuses.append(self.weight.ds_status.name)
        values = torch.from_numpy(self.weight.detach().numpy().copy())
        return x * self.weight + values


@probe
def modules_have_their_own_parameters_whole_while_they_run():
    part = ByAddress()
    engine = make_engine(model=nn.Sequential(part, nn.Linear(6, 1)))
    for _ in range(2):
        values = engine.module[0](torch.zeros(6)).tolist()
        engine.backward(engine(torch.ones(2, 6)).sum())
        assert all(abs(value - index) < 0.1 for index, value in enumerate(values)), values
        engine.step()
    assert part.statuses == ["AVAILABLE"] * 4


@probe
def a_parameter_that_a_module_returns_is_whole_while_its_caller_runs():
    class Returning(nn.Linear):
        def forward(self, x):
            return F.linear(x, self.weight), self.bias

    class Passing(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Returning(4, 4)

        def forward(self, x):
            x, bias = self.inner(x)
            assert bias.ds_status is deepspeed.zero.ZeroParamStatus.AVAILABLE and bias.data_ptr() != 0
            return {"x": x, "bias": bias}

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.passing = Passing()

        def forward(self, x):
            made = self.passing(x)
            assert made["bias"].data_ptr() != 0 and list(self._external_params.values()) == [made["bias"]]
            assert not self.passing._external_params and not self.passing.inner._external_params
            return (made["x"] + made["bias"]).sum()

    torch.manual_seed(0)
    model = Outer()
    engine = make_engine(model=model)
    for _ in range(3):
        engine.backward(engine(torch.ones(2, 4)))
        engine.step()
        assert model.passing.inner.bias.ds_status is deepspeed.zero.ZeroParamStatus.NOT_AVAILABLE
    assert model.passing.inner.bias.is_external_param and not model.passing.inner.weight.is_external_param
    with torch.no_grad():
        model.passing(torch.ones(2, 4))
    assert model.passing.inner.bias.ds_status is deepspeed.zero.ZeroParamStatus.NOT_AVAILABLE


@probe
def a_parameter_of_another_module_is_whole_from_its_reading_on():
    class Reading(Net):
        def forward(self, tokens):
            weight, taken = self.inner.weight, self.inner.weight
            assert weight.data_ptr() != 0 and taken is weight and self.inner.bias.data_ptr() != 0
            self.seen = self._external_params
            return super().forward(tokens)

    torch.manual_seed(0)
    model = Reading()
    weight, bias = model.inner.weight, model.inner.bias
    engine = make_engine(model=model)
    found = train(engine)
    assert list(model.seen.values()) == [weight, bias]
    assert weight.ds_status is deepspeed.zero.ZeroParamStatus.NOT_AVAILABLE and model.inner.weight.is_external_param
    expected = train(make_engine(1))
    assert all(abs(a - b) < 1e-6 for a, b in zip(found, expected)), (found, expected)
    with deepspeed.zero.GatheredParameters(list(model.parameters())):
        twin = copy.deepcopy(model)
        stored = io.BytesIO()
        torch.save(model.inner, stored)
    stored.seek(0)
    loaded = torch.load(stored, weights_only=False)
    assert torch.equal(loaded(torch.ones(2, 24)), model.inner(torch.ones(2, 24)))
    assert torch.equal(twin.inner(torch.ones(2, 24)), model.inner(torch.ones(2, 24)))
    assert [name for name, _ in twin.named_parameters()] == [name for name, _ in model.named_parameters()]
    engine.destroy()
    assert type(model.inner._parameters) is dict and model.inner.weight is weight


@probe
def a_parameter_that_a_recomputed_function_gets_is_whole():
    from torch.utils.checkpoint import checkpoint

    class Returning(nn.Linear):
        def forward(self, x):
            return F.linear(x, self.weight), self.bias

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Returning(4, 4)
            self.seen = []

        def region(self, x):
            x, bias = self.inner(x)
            self.seen.append(bias.data_ptr() != 0)
            return torch.tanh(x + bias)

        def forward(self, x):
            return checkpoint(self.region, x, use_reentrant=False).sum()

    for direct in (False, True):
        model = Outer()
        engine = make_engine(model=model)
        for _ in range(2):
            loss = engine(torch.ones(2, 4, requires_grad=True))
            loss.backward() if direct else engine.backward(loss)
            engine.step()
            assert model.inner.bias.ds_status is deepspeed.zero.ZeroParamStatus.NOT_AVAILABLE
        assert model.seen == [True] * 4


@probe
def layers_that_are_put_around_others_have_their_parameters_whole():
    class Around(nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.weight, self.bias = layer.weight, layer.bias
            self.added = nn.Linear(24, 24)

        def forward(self, x):
            assert self.weight.data_ptr() != 0 and self.bias.data_ptr() != 0
            return F.linear(x, self.weight, self.bias) + 0 * self.added(x)

    model = make_net()
    engine = make_engine(model=model)
    found = train(engine, 1)
    hooks = len(engine._module_calls.forward_hooks)
    model.inner = Around(model.inner)
    found += [step_of(engine, step) for step in (1, 2)]
    assert len(engine._module_calls.forward_hooks) == hooks + 4
    expected = train(make_engine(1))
    assert all(abs(a - b) < 1e-6 for a, b in zip(found, expected)), (found, expected)
    engine.destroy()
    model.last = nn.Linear(2, 2)
    assert type(model.last._parameters) is dict


@probe
def weights_and_inputs_of_different_types_meet():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.full((6,), 2.0))

        def forward(self, x):
            return self.weight * x

    engine = make_engine(model=Scale(), bf16={"enabled": True})
    result = engine(torch.full((6,), 0.3))
    assert result.dtype == torch.float32 and torch.equal(result, torch.full((6,), 0.6))
    engine.backward(result.sum())
    engine.step()


@probe
def what_is_assigned_to_a_shard_is_the_parameter_from_then_on():
    for more in ({}, {"bf16": {"enabled": True}}):
        engine = make_engine(model=nn.Linear(3, 1, bias=False), optimizer={"type": "Adam", "params": {"lr": 0.0}}, **more)
        weight = engine.module.weight
        assert weight.ds_tensor.ds_numel == weight.partition_numel() and weight.ds_tensor.dtype == weight.dtype
        weight.ds_tensor.data = torch.full_like(weight.ds_tensor.data, 4.0)
        for _ in range(2):
            assert engine(torch.ones(1, 3, dtype=weight.dtype)).item() == 12.0
            engine.backward(engine(torch.ones(1, 3, dtype=weight.dtype)).sum())
            engine.step()
        file = io.BytesIO()
        torch.save(weight.ds_tensor, file)
        file.seek(0)
        for kept in (torch.load(file), copy.deepcopy(weight.ds_tensor)):
            assert type(kept) is torch.Tensor and torch.equal(kept, weight.ds_tensor)


@probe
def parameters_know_the_leaf_module_that_gathers_them():
    model = make_net()
    whole = nn.Sequential(nn.Linear(24, 24), nn.Sequential(nn.Linear(24, 24)))
    model.inner = whole
    deepspeed.utils.set_z3_leaf_module(whole, True)
    deepspeed.utils.set_z3_leaf_module(whole[1], True)  # the outer leaf gathers it
    assert not deepspeed.utils.z3_leaf_parameter(whole[0].weight)  # no engine has it
    engine = make_engine(model=model)
    assert whole[1][0].weight.ds_z3_leaf_module is whole
    assert deepspeed.utils.z3_leaf_parameter(whole[0].bias) and not deepspeed.utils.z3_leaf_parameter(model.embed.weight)
    (leaf,) = engine.optimizer.leaf_parameters.items()
    assert leaf[0] is whole and [id(param) for param in leaf[1]] == [id(param) for param in whole.parameters()]
    engine.destroy()
    assert not deepspeed.utils.z3_leaf_parameter(whole[0].weight)


@probe
def shares_of_gradients_are_whole_together():
    engine = make_engine(model=nn.Linear(3, 1))
    engine.backward(engine(torch.tensor([[1.0, 2.0, 3.0]])).sum())
    shares = engine.optimizer.get_fp32_grad_partitions()[0]
    assert [share.numel() for share in shares.values()] == [param.partition_numel() for param in engine.module.parameters()]
    for share, expected in zip(shares.values(), ([1.0, 2.0, 3.0], [1.0])):
        parts = [torch.empty_like(share) for _ in range(deepspeed.comm.get_world_size())]
        torch.distributed.all_gather(parts, share)
        whole = torch.cat(parts)
        assert whole[: len(expected)].tolist() == expected and not whole[len(expected) :].any()
    (norm,) = engine.optimizer._get_norm_groups()
    assert abs(norm.item() - 15**0.5) < 1e-6


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


if __name__ == "__main__":
    main()
