"""Layers of deepspeed.zero, and what scripts differentiate by themselves."""

import pytest
import torch

import deepspeed
from deepspeed.runtime.zero.linear import LinearModuleForZeroStage3, autocast_custom_bwd, autocast_custom_fwd, zero3_linear_wrap
from deepspeed.runtime.zero.tiling import TiledLinear, TiledLinearReturnBias


def make(stage, model, offload="none", **more):
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
        "zero_optimization": {"stage": stage, "offload_optimizer": {"device": offload}},
        **more,
    }
    return deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]


@pytest.mark.parametrize("bias", [True, False])
def test_adds_tiles_up_to_the_layer(bias):
    layer = torch.nn.Linear(7, 5, bias=bias)
    tiles = TiledLinear(7, 5, bias=bias, in_splits=3, out_splits=2, init_linear=layer)
    inputs = torch.randn(4, 7)
    torch.testing.assert_close(tiles(inputs), layer(inputs))
    torch.testing.assert_close(
        TiledLinear(7, 5, in_splits=3, out_splits=2, bias=bias, input_is_already_split=True, init_linear=layer)(
            inputs.split([3, 2, 2], dim=-1)
        ),
        layer(inputs),
    )


def test_returns_the_tiles_bias_separately():
    class Apart(torch.nn.Linear):
        def forward(self, inputs):
            return torch.nn.functional.linear(inputs, self.weight), self.bias

    layer = torch.nn.Linear(6, 4)
    tiles = TiledLinearReturnBias(6, 4, in_splits=2, out_splits=2, linear_cls=Apart, init_linear=layer)
    inputs = torch.randn(3, 6)
    output, bias = tiles(inputs)
    torch.testing.assert_close(output + bias, layer(inputs))


@pytest.mark.parametrize("splits", [0, 5])
def test_requires_between_one_tile_and_the_number_of_features(splits):
    with pytest.raises(RuntimeError, match="in_splits"):
        TiledLinear(4, 8, in_splits=splits)


@pytest.mark.parametrize("shape", [(4,), (2, 4), (2, 3, 4)])
def test_gives_the_linear_function_torchs_gradients(shape):
    layer = LinearModuleForZeroStage3(4, 3)
    inputs = torch.randn(shape, requires_grad=True)
    tensors = [inputs, layer.weight, layer.bias]
    found = torch.autograd.grad(layer(inputs).square().sum(), tensors)
    expected = torch.autograd.grad(torch.nn.functional.linear(*tensors).square().sum(), tensors)
    torch.testing.assert_close(found, expected)


def test_runs_the_linear_functions_backward_under_its_forwards_autocast():
    inputs, weight = torch.randn(2, 4, requires_grad=True), torch.randn(3, 4, requires_grad=True)
    output = zero3_linear_wrap(inputs, weight)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = torch.autograd.grad(output.sum(), weight)[0]
    torch.testing.assert_close(found, inputs.sum(0).expand(3, 4), rtol=0, atol=1e-6)


def test_runs_forward_and_backward_of_functions_under_one_autocast():
    class Square(torch.autograd.Function):
        @staticmethod
        @autocast_custom_fwd
        def forward(ctx, values):
            ctx.save_for_backward(values)
            return values @ values

        @staticmethod
        @autocast_custom_bwd
        def backward(ctx, grad):
            (values,) = ctx.saved_tensors
            seen.append(torch.is_autocast_enabled("cpu"))
            return grad.to(values.dtype) @ values.T + values.T @ grad.to(values.dtype)

    seen = []
    with torch.autocast("cpu", dtype=torch.bfloat16):
        made = Square.apply(torch.eye(2, requires_grad=True))
    assert made.dtype == torch.bfloat16
    made.sum().backward()
    Square.apply(torch.eye(2, requires_grad=True)).sum().backward()
    assert seen == [True, False]


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_differentiates_through_the_engine_by_torch_func(stage):
    model = torch.nn.Linear(4, 1)
    engine = make(stage, model)
    inputs = torch.randn(3, 4)
    found = torch.func.vmap(torch.func.grad(lambda one: engine(one).sum()))(inputs)
    with deepspeed.zero.GatheredParameters(model.weight):
        torch.testing.assert_close(found, model.weight.detach().expand(3, 4))
    engine.backward(engine(inputs).sum())
    engine.step()
    assert engine.global_steps == 1


@pytest.mark.parametrize(
    "precision, dtype", [({}, torch.float), ({"bf16": {"enabled": True}}, torch.bfloat16), ({"fp16": {"enabled": True}}, torch.half)]
)
def test_builds_models_in_the_configs_dtype(precision, dtype):
    config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 3}, **precision}
    with deepspeed.zero.Init(config_dict_or_path=config):
        layers = torch.nn.ModuleList([torch.nn.Linear(4, 2), torch.nn.Linear(4, 2, dtype=torch.bfloat16)])
    assert {param.dtype for param in layers.parameters()} == {dtype}


def test_keeps_a_bias_partitioned_that_is_made_at_full_length():
    with deepspeed.zero.Init(config_dict_or_path={"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 3}}):
        layer = torch.nn.Linear(4, 3)
    with deepspeed.zero.GatheredParameters(layer.bias):
        expected = layer.bias.detach().clone()
    layer.bias.data = torch.nn.functional.pad(layer.bias.data, (0, layer.weight.shape[0] - layer.bias.shape[0]), "constant", 0)
    with deepspeed.zero.GatheredParameters(layer.bias):
        assert torch.equal(layer.bias, expected)
    engine = make(3, layer)
    engine.backward(engine(torch.ones(2, 4)).sum())
    engine.step()


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_shows_the_gradients_that_the_optimizer_owns(stage):
    model = torch.nn.Linear(4, 2)
    engine = make(stage, model)
    engine.backward(engine(torch.ones(2, 4)).sum())
    (owned,) = engine.optimizer.averaged_gradients.values()
    assert sorted(grad.tolist() for grad in owned) == [[2.0] * 2, [2.0] * 8]
    engine.step()
    assert engine.optimizer.averaged_gradients == {}


@pytest.mark.parametrize("stage", [1, 2])
def test_shows_a_windows_sums_for_an_optimizer_on_the_host(stage):
    model = torch.nn.Linear(4, 2)
    engine = make(stage, model, gradient_accumulation_steps=2, offload="cpu")
    assert engine.optimizer.accumulated_grads_in_cpu == {}
    for summed in (1.0, 2.0):
        engine.backward(engine(torch.ones(2, 4)).sum())
        sums = engine.optimizer.accumulated_grads_in_cpu
        assert {number: grad.tolist() for number, grad in sums.items()} == {0: [summed] * 8, 1: [summed] * 2}
        engine.step()
    assert engine.optimizer.accumulated_grads_in_cpu == {}
    assert not hasattr(make(stage, torch.nn.Linear(4, 2)).optimizer, "accumulated_grads_in_cpu")


def test_refuses_nested_scopes_that_put_off_reductions():
    engine = make(1, torch.nn.Linear(4, 2))
    with engine.coalesce_grad_reduction():
        with pytest.raises(deepspeed.DeepSpeedError, match="no_sync.* nested"):
            with engine.no_sync():
                pass
    with engine.no_sync():
        with pytest.raises(deepspeed.DeepSpeedError, match="nested"):
            with engine.coalesce_grad_reduction():
                pass
