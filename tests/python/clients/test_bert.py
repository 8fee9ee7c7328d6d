"""A BERT of Transformers whose layers are DeepSpeed's."""

import copy
import pathlib
import re
import subprocess
import sys

import pytest
import torch

import deepspeed
from deepspeed.module_inject import bert_weights, module_inject
from deepspeed.ops.transformer import DeepSpeedTransformerLayer

transformers = pytest.importorskip("transformers")
BertLayer = transformers.models.bert.modeling_bert.BertLayer
PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "transformer_layer.md"


def small_bert(**changes):
    torch.manual_seed(1)
    sizes = dict(hidden_size=24, intermediate_size=40, num_attention_heads=3, num_hidden_layers=2, vocab_size=40)
    options = dict(hidden_act="gelu_new", attn_implementation="eager", max_position_embeddings=16, initializer_range=0.2)
    config = transformers.BertConfig(**{**sizes, **options, **changes})
    model = transformers.BertForMaskedLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))  # biases and norms that are not 0 and 1
    return model, config


def batch():
    tokens = torch.randint(0, 40, (3, 11), generator=torch.Generator().manual_seed(2))
    mask = torch.ones_like(tokens)
    mask[1, 7:] = 0
    return dict(input_ids=tokens, attention_mask=mask, labels=tokens.flip(1))


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_keeps_outputs_and_gradients(attention):
    model, config = small_bert(attn_implementation=attention)
    replaced = module_inject(BertLayer, copy.deepcopy(model), config)
    layers = [module for module in replaced.modules() if isinstance(module, DeepSpeedTransformerLayer)]
    assert len(layers) == 2 and not any(isinstance(module, BertLayer) for module in replaced.modules())
    found, expected = replaced.eval()(**batch()), model.eval()(**batch())
    seen = batch()["attention_mask"].bool()
    torch.testing.assert_close(found.logits[seen], expected.logits[seen], atol=1e-4, rtol=1e-4)
    found.loss.backward()
    expected.loss.backward()
    seen, wanted = (bert.bert.embeddings.word_embeddings.weight.grad for bert in (replaced, model))
    torch.testing.assert_close(seen, wanted, atol=1e-5, rtol=1e-3)
    for layer, original in zip(layers, model.bert.encoder.layer, strict=True):
        weights, biases = bert_weights(original)
        queries = torch.cat([weight.grad for weight in weights[:3]])
        torch.testing.assert_close(layer.attn_qkvw.grad, queries, atol=1e-5, rtol=1e-3)
        torch.testing.assert_close(layer.norm_b.grad, biases[7].grad, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("stage", [0, 3])
def test_trains_a_bert(stage):
    model, config = small_bert()
    module_inject(BertLayer, model.train(), config)
    engine = deepspeed.initialize(
        model=model,
        model_parameters=model.parameters(),
        config={
            "train_micro_batch_size_per_gpu": 3,
            "optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
            "zero_optimization": {"stage": stage},
        },
    )[0]
    losses = []
    for _ in range(30):
        loss = engine(**batch()).loss
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]


def test_refuses_other_activations_and_models():
    model, config = small_bert(hidden_act="relu")
    with pytest.raises(NotImplementedError, match="hidden_act 'relu'"):
        module_inject(BertLayer, model, config)
    with pytest.raises(ValueError, match="no module of the class BertLayer"):
        module_inject(BertLayer, torch.nn.Linear(2, 2), small_bert()[1])


def test_replaces_gelu_with_erf_by_the_tanh_form(caplog):
    model, config = small_bert(hidden_act="gelu")
    deepspeed.logger.propagate, before = True, deepspeed.logger.propagate
    try:
        replaced = module_inject(BertLayer, copy.deepcopy(model), config)
    finally:
        deepspeed.logger.propagate = before
    assert "tanh form" in caplog.text
    difference = (replaced.eval()(**batch()).logits - model.eval()(**batch()).logits).abs().max()
    assert 0 < difference < 0.05


def test_runs_the_pages_program():
    (block,) = (text for text in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "import transformers" in text)
    subprocess.run([sys.executable, "-c", block], check=True, timeout=600)
