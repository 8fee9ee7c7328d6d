"""DeepSpeed's transformer layer from Python: its config, its gradients, its places in a model."""

import copy
import math
import pathlib
import re
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

import deepspeed
from deepspeed.ops.transformer import DeepSpeedTransformerConfig, DeepSpeedTransformerLayer

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "transformer_layer.md"


def config_of(**changes):
    sizes = dict(hidden_size=8, intermediate_size=12, heads=2, num_hidden_layers=2, initializer_range=0.5)
    return DeepSpeedTransformerConfig(**{**sizes, **changes})


def test_allows_a_layer_without_a_number():
    config = DeepSpeedTransformerConfig.from_dict({**vars(config_of()), "layer_id": None})
    layer = DeepSpeedTransformerLayer(config)
    layer.config.layer_id = None
    assert layer(torch.ones(2, 3, 8)).shape == (2, 3, 8)


def plain_layer(layer, x, mask):
    """Computes the layer without dropout from torch's own functions."""
    config = layer.config
    batch, sequence, hidden = x.shape

    def norm(states, name):
        return F.layer_norm(states, (hidden,), getattr(layer, f"{name}w"), getattr(layer, f"{name}b"), config.layer_norm_eps)

    attended = norm(x, "norm_") if config.pre_layer_norm else x
    qkv = F.linear(attended, layer.attn_qkvw, layer.attn_qkvb).view(batch, sequence, 3, config.heads, -1).permute(2, 0, 3, 1, 4)
    scores = qkv[0] @ qkv[1].transpose(-1, -2) / math.sqrt(hidden // config.heads)
    context = ((scores if mask is None else scores + mask).softmax(-1) @ qkv[2]).transpose(1, 2).reshape(x.shape)
    middle_sum = x + F.linear(context, layer.attn_ow, layer.attn_ob)
    middle = norm(middle_sum, "attn_n")
    output = F.linear(F.gelu(F.linear(middle, layer.inter_w, layer.inter_b), approximate="tanh"), layer.output_w, layer.output_b)
    return middle_sum + output if config.pre_layer_norm else norm(middle + output, "norm_")


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("pre", [False, True])
@pytest.mark.parametrize("options", [{}, {"attn_dropout_ratio": 0.2, "hidden_dropout_ratio": 0.2}, {"normalize_invertible": True}])
def test_matches_finite_differences(pre, mask, options):
    torch.manual_seed(3)
    sizes = dict(hidden_size=4, intermediate_size=6)  # a forward for each element
    layer = DeepSpeedTransformerLayer(config_of(pre_layer_norm=pre, layer_norm_eps=1e-3, seed=5, **sizes, **options)).double()
    x = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    added = torch.randn(2, 1, 1, 3, dtype=torch.float64) if mask else None

    def run(states, *weights):
        torch.manual_seed(9)
        named = dict(zip((name for name, _ in layer.named_parameters()), weights, strict=True))
        return torch.func.functional_call(layer, named, (states, added))

    assert torch.autograd.gradcheck(run, (x, *layer.parameters()), atol=1e-6, rtol=1e-4)


# (batch, hidden, sequence, heads, layers, pre-LN, fp16): sizes of DeepSpeed's own tests that a CPU computes in seconds.
FORWARD = [
    (8, 160, 128, 2, 3, True, True),
    (8, 160, 128, 2, 3, False, True),
    (8, 256, 52, 4, 3, True, True),
    (3, 1024, 51, 16, 1, True, False),
    (3, 1024, 54, 16, 1, True, True),
    (64, 1024, 24, 16, 1, False, False),
    (8, 128, 128, 2, 3, True, False),
    (8, 128, 128, 2, 3, True, True),
    (1, 256, 2048, 32, 1, True, True),
]


def stack_of(hidden, heads, layers, pre, fp16):
    torch.manual_seed(123)
    config = DeepSpeedTransformerConfig(
        batch_size=64,
        hidden_size=hidden,
        heads=heads,
        attn_dropout_ratio=0.0,
        hidden_dropout_ratio=0.0,
        num_hidden_layers=layers,
        initializer_range=0.02,
        pre_layer_norm=pre,
        fp16=fp16,
    )
    stack = [DeepSpeedTransformerLayer(config) for _ in range(layers)]
    return [layer.half() if fp16 else layer for layer in stack]


@pytest.mark.parametrize("batch, hidden, sequence, heads, layers, pre, fp16", FORWARD)
def test_computes_forward_at_deepspeeds_sizes(batch, hidden, sequence, heads, layers, pre, fp16):
    stack = stack_of(hidden, heads, layers, pre, fp16)
    x = torch.randn(batch, sequence, hidden)
    mask = torch.where(torch.rand(batch, 1, 1, sequence) < 0.2, -10000.0, 0.0)
    seen, expected = x.half() if fp16 else x, x
    with torch.no_grad():
        for layer in stack:
            seen = layer(seen, mask)
            expected = plain_layer(copy.deepcopy(layer).float(), expected, mask)
    torch.testing.assert_close(seen.float(), expected, atol=3e-2, rtol=1e-7)


@pytest.mark.parametrize(
    "batch, hidden, sequence, heads, layers, pre, tolerance", [(8, 160, 128, 2, 3, True, 0.1), (8, 160, 128, 2, 4, False, 0.2)]
)
def test_computes_backward_at_deepspeeds_sizes(batch, hidden, sequence, heads, layers, pre, tolerance):
    stack = stack_of(hidden, heads, layers, pre, True)
    wide = [copy.deepcopy(layer).float() for layer in stack]
    x = torch.randn(batch, sequence, hidden)
    seen, expected = x.half(), x
    for layer, wide_layer in zip(stack, wide, strict=True):
        seen, expected = layer(seen), plain_layer(wide_layer, expected, None)
    gradient = torch.randn_like(x)
    seen.backward(gradient.half())
    expected.backward(gradient)
    for layer, wide_layer in zip(stack, wide, strict=True):
        for (name, parameter), reference in zip(layer.named_parameters(), wide_layer.parameters(), strict=True):
            allowed = tolerance * reference.grad.abs().mean().item()
            assert (parameter.grad.float() - reference.grad).abs().mean().item() <= allowed, name


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_repeats_the_masks_in_recomputation(use_reentrant):
    layer = DeepSpeedTransformerLayer(config_of(attn_dropout_ratio=0.3, hidden_dropout_ratio=0.3))
    x = torch.randn(2, 5, 8, requires_grad=True)

    def run(function):
        torch.manual_seed(2)
        output = function(x)
        return [output, *torch.autograd.grad(output.square().sum(), [x, *layer.parameters()])]

    def run_backward(function):
        torch.manual_seed(2)
        layer.zero_grad()
        x.grad = None
        output = function(x)
        output.square().sum().backward()
        return [output, x.grad, *(parameter.grad for parameter in layer.parameters())]

    expected = run(layer)
    recomputed = [
        lambda states: torch.utils.checkpoint.checkpoint(layer, states, use_reentrant=use_reentrant),
        lambda states: deepspeed.checkpointing.checkpoint(layer, states),
    ]
    for function in recomputed:
        for seen, wanted in zip(run_backward(function), expected, strict=True):
            assert torch.equal(seen, wanted)


def saved_bytes(**changes):
    storages = {}

    def pack(tensor):
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    layer = DeepSpeedTransformerLayer(config_of(attn_dropout_ratio=0.1, **changes))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = layer(torch.randn(2, 5, 8))
    output.sum().backward()
    return sum(storages.values())


def test_shows_hooks_what_the_options_leave_out():
    tokens, squares = 2 * 5, 2 * 2 * 5 * 5
    whole = saved_bytes()
    assert whole - saved_bytes(gelu_checkpoint=True) == tokens * 12 * 4
    assert whole - saved_bytes(attn_dropout_checkpoint=True) == squares * 4
    assert whole - saved_bytes(normalize_invertible=True) == 2 * tokens * 8 * 4 + 2 * tokens * 4


def test_takes_deepspeeds_arguments_of_the_config(tmp_path):
    config = DeepSpeedTransformerConfig(8, 64, -1, 4, 0.1, 0.2, 24, 0.02, 1e-6, -1, 12, True, False, True, True, False, True, True, True)
    assert (config.batch_size, config.hidden_size, config.intermediate_size, config.heads) == (8, 64, 256, 4)
    assert (config.fp16, config.pre_layer_norm, config.adjust_init_range, config.return_tuple) == (True, False, False, True)
    assert config.seed == 12 and config.layer_norm_eps == 1e-6 and config.training and not config.test_gemm
    text = '{"hidden_size": 16, "heads": 4, "gelu_checkpoint": true}'
    for encoding in ("utf-16", "utf-8"):
        path = tmp_path / f"{encoding}.json"
        path.write_text(text, encoding=encoding)
        read = DeepSpeedTransformerConfig.from_json_file(path)
        assert (read.hidden_size, read.heads, read.gelu_checkpoint) == (16, 4, True)
    assert DeepSpeedTransformerConfig.from_dict({"hidden_size": 16, "heads": 4}).num_hidden_layers == -1
    with pytest.raises(ValueError, match="hiden_size.*did you mean 'hidden_size'"):
        DeepSpeedTransformerConfig.from_dict({"hiden_size": 16})
    with pytest.raises(ValueError, match="heads: got 0, expected a whole number of at least 1"):
        DeepSpeedTransformerConfig.from_dict({"heads": 0})


def test_exports_the_layer_under_its_names():
    assert deepspeed.DeepSpeedTransformerLayer is DeepSpeedTransformerLayer is deepspeed.ops.DeepSpeedTransformerLayer
    assert deepspeed.DeepSpeedTransformerConfig is deepspeed.ops.transformer.transformer.DeepSpeedTransformerConfig
    from deepspeed.ops.op_builder import TransformerBuilder

    assert TransformerBuilder().is_compatible()
    with pytest.raises(NotImplementedError, match="module_inject.module_inject"):
        deepspeed.module_inject.replace_transformer_layer(None, None)


def test_has_twelve_parameters():
    layer = DeepSpeedTransformerLayer(config_of(return_tuple=True))
    assert {name: tuple(parameter.shape) for name, parameter in layer.named_parameters()} == {
        "attn_qkvw": (24, 8),
        "attn_qkvb": (24,),
        "attn_ow": (8, 8),
        "attn_ob": (8,),
        "attn_nw": (8,),
        "attn_nb": (8,),
        "inter_w": (12, 8),
        "inter_b": (12,),
        "output_w": (8, 12),
        "output_b": (8,),
        "norm_w": (8,),
        "norm_b": (8,),
    }
    following = DeepSpeedTransformerLayer(config_of())
    assert following.config.layer_id == layer.config.layer_id + 1
    x = torch.randn(1, 3, 8)
    (output,) = layer(x, None)
    again = copy.deepcopy(layer)
    assert torch.equal(again(x)[0], output)
    following.load_state_dict(layer.state_dict())
    assert torch.equal(following(x), output)
    assert isinstance(DeepSpeedTransformerLayer(config_of(huggingface=True))(x), tuple)


def test_keeps_the_dtype_of_initial_weights():
    sizes = [(8, 8), (8, 8), (8, 8), (8, 8), (8,), (12, 8), (8, 12), (8,)]
    weights = [torch.randn(size).half() for size in sizes]
    biases = [None, *(torch.randn(size[0]).half() for size in sizes[1:])]
    layer = DeepSpeedTransformerLayer(config_of(initializer_range=-1), weights, biases)
    assert all(parameter.dtype == torch.float16 and parameter.requires_grad for parameter in layer.parameters())
    assert torch.equal(layer.attn_qkvw, torch.cat(weights[:3]))
    assert torch.equal(layer.attn_qkvb, torch.cat([torch.zeros(8).half(), *biases[1:3]]))
    assert torch.equal(layer.output_w, weights[6]) and torch.equal(layer.norm_b, biases[7])
    with pytest.raises(ValueError, match=r"inter_w: got sizes \[8, 12\], expected sizes \[12, 8\]"):
        DeepSpeedTransformerLayer(config_of(), [*weights[:5], weights[6], *weights[6:]], biases)


def test_checks_the_config_only_after_a_change():
    layer, x = DeepSpeedTransformerLayer(config_of()), torch.randn(2, 4, 8)
    checked = layer._core_config()
    layer(x)
    with torch.no_grad():
        assert not layer(x).requires_grad
        assert layer._core_config() is checked
    layer.config.hidden_dropout_ratio = 2.0
    with pytest.raises(ValueError, match=r"hidden_dropout_ratio: got 2.0, expected a number, from 0 to 1, or -1"):
        layer(x)


def test_leaves_dropout_out_in_eval_and_with_training_false():
    layer = DeepSpeedTransformerLayer(config_of(attn_dropout_ratio=0.5, hidden_dropout_ratio=0.5))
    x = torch.randn(2, 4, 8)
    assert not torch.equal(layer(x), layer(x))
    layer.config.training = False
    assert torch.equal(layer(x), layer(x))
    layer.config.training = True
    expected = plain_layer(layer, x, None)
    torch.testing.assert_close(layer.eval()(x), expected, atol=1e-5, rtol=1e-4)


def test_appends_the_gradients_to_a_list():
    layer = DeepSpeedTransformerLayer(config_of())
    grads = []
    layer(torch.randn(1, 3, 8), grads=grads).square().sum().backward()
    found = {name: gradient for gradient, name in grads}
    assert torch.equal(torch.cat([found["Q_W"], found["K_W"], found["V_W"]]), layer.attn_qkvw.grad)
    assert torch.equal(torch.cat([found["Q_B"], found["K_B"], found["V_B"]]), layer.attn_qkvb.grad)
    assert torch.equal(found["int_W"], layer.inter_w.grad) and len(found) == 16


def test_names_what_is_wrong_in_errors():
    with pytest.raises(ValueError, match="hidden_size: got 8, expected a multiple of heads, 3"):
        DeepSpeedTransformerLayer(config_of(heads=3))
    with pytest.raises(ValueError, match="num_hidden_layers: got -1"):
        DeepSpeedTransformerLayer(config_of(num_hidden_layers=-1))
    with pytest.raises(ValueError, match="expected 8 each"):
        DeepSpeedTransformerLayer(config_of(), [torch.zeros(8, 8)], [None])
    layer = DeepSpeedTransformerLayer(config_of(batch_size=2))
    x = torch.randn(2, 3, 8)
    with pytest.raises(ValueError, match=rf"transformer layer {layer.config.layer_id}: hidden_states: got 3 sequences"):
        layer(torch.randn(3, 3, 8))
    with pytest.raises(ValueError, match="attention_mask"):
        layer(x, torch.zeros(2, 3))
    with pytest.raises(NotImplementedError, match="head_mask is not supported"):
        layer(x, None, torch.ones(2))
    with pytest.raises(ValueError, match="attn_qkvw is of Float"):
        layer(x.bfloat16())
    x.requires_grad_()
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(layer(x).sum(), x, create_graph=True)


def test_computes_in_autocasts_dtype():
    layer = DeepSpeedTransformerLayer(config_of())
    x = torch.randn(2, 3, 8)
    with torch.autocast("cpu", torch.bfloat16):
        output = layer(x)
    output.float().sum().backward()
    assert output.dtype == torch.bfloat16 and layer.attn_qkvw.grad.dtype == torch.float32
    torch.testing.assert_close(output.float(), layer(x), atol=0.1, rtol=0.1)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_trains_in_the_engine(stage):
    torch.manual_seed(7)
    zero = {"stage": stage, "stage3_param_persistence_threshold": 10}
    config = {"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW", "params": {"lr": 0.02}}, "zero_optimization": zero}
    with deepspeed.zero.Init(config_dict_or_path=config if stage == 3 else None, enabled=stage == 3):
        model = torch.nn.ModuleList([DeepSpeedTransformerLayer(config_of(initializer_range=0.1)) for _ in range(2)])
        model.forward = lambda states: model[1](model[0](states))
    engine = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]
    x = torch.randn(2, 4, 8)
    losses = []
    for _ in range(8):
        loss = F.mse_loss(engine(x), x.flip(1))
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]


def test_runs_the_pages_program():
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        if "import transformers" in block or "from transformers" in block:
            continue  # clients/test_bert.py runs it
        subprocess.run([sys.executable, "-c", block], check=True, timeout=600)
