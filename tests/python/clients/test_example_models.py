"""The models of the examples score as Transformers does, from its files, and Transformers reads what they write."""

import json
import os
import pathlib
import subprocess

import pytest
import torch

transformers = pytest.importorskip("transformers")
safetensors = pytest.importorskip("safetensors")
load_file, save_file = (getattr(pytest.importorskip("safetensors.torch"), name) for name in ("load_file", "save_file"))
PROGRAMS = pathlib.Path(os.environ["DEEPSPEED_PROGRAMS"])
EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples"
CLASSES = dict(
    llama=(transformers.LlamaConfig, transformers.LlamaForCausalLM),
    gpt2=(transformers.GPT2Config, transformers.GPT2LMHeadModel),
    bert=(transformers.BertConfig, transformers.BertForMaskedLM),
)
LLAMA3 = dict(
    rope_type="llama3",
    rope_theta=500000.0,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=32,
)
LLAMA = dict(hidden_size=24, intermediate_size=44, num_attention_heads=6, num_hidden_layers=2, vocab_size=53, max_position_embeddings=64)
GPT2 = dict(n_embd=24, n_head=3, n_layer=2, vocab_size=53, n_positions=64)
BERT = dict(
    hidden_size=24,
    intermediate_size=44,
    num_attention_heads=3,
    num_hidden_layers=2,
    vocab_size=53,
    max_position_embeddings=64,
    hidden_act="gelu_new",
)
MODELS = {
    "llama": dict(LLAMA),
    "llama-one-shared-head": dict(LLAMA, num_key_value_heads=1, num_hidden_layers=3),
    "llama-two-shared-heads": dict(LLAMA, num_key_value_heads=2, attention_bias=True, tie_word_embeddings=True),
    "llama-biases-and-wide-heads": dict(LLAMA, head_dim=10, attention_bias=True, mlp_bias=True, rms_norm_eps=1e-3),
    "llama-theta": dict(LLAMA, num_key_value_heads=3, rope_parameters=dict(rope_type="default", rope_theta=123.0), pad_token_id=3),
    "llama-linear-rope": dict(LLAMA, rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=2.5)),
    "llama-rope-of-3.1": dict(LLAMA, head_dim=16, rope_parameters=LLAMA3),
    "gpt2": dict(GPT2),
    "gpt2-inner": dict(GPT2, n_inner=37, layer_norm_epsilon=1e-3, activation_function="gelu_pytorch_tanh"),
    "gpt2-one-layer": dict(GPT2, n_layer=1, n_head=1, n_embd=7),
    "bert": dict(BERT),
    "bert-odd": dict(BERT, hidden_size=21, intermediate_size=13, num_hidden_layers=3, type_vocab_size=3, layer_norm_eps=1e-5),
    "bert-untied": dict(BERT, tie_word_embeddings=False, pad_token_id=5),
}


def run(*arguments, ranks=1):
    environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    command = [str(argument) for argument in arguments]
    command[0] = str(PROGRAMS.parent / "examples" / command[0])
    if ranks > 1:
        command = [str(PROGRAMS / "deepspeed"), "--num_procs", str(ranks), *command]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
    return done.returncode, done.stdout


def run_well(*arguments, ranks=1):
    status, output = run(*arguments, ranks=ranks)
    assert status == 0, output
    return output


def make_model(name, folder, **how_to_save):
    """Returns a model of Transformers whose weights, biases and norms are all drawn, and writes its folder."""
    config_class, model_class = CLASSES[name.split("-")[0]]
    torch.manual_seed(len(name))
    model = model_class(config_class(**MODELS[name])).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(folder, **how_to_save)
    return model


def make_inputs(kind, length=40):
    generator = torch.Generator().manual_seed(7)
    inputs = dict(input_ids=torch.randint(0, 53, (3, length), generator=generator))
    if kind == "bert":
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
        inputs["attention_mask"][1, 25:] = 0
        inputs["token_type_ids"] = torch.randint(0, 2, (3, length), generator=generator)
    return inputs


def scores_of_example(kind, folder, inputs, place):
    save_file(inputs, place / "inputs.safetensors")
    run_well(kind, "--model", folder, "--inputs", place / "inputs.safetensors", "--logits", place / "logits.safetensors")
    return load_file(place / "logits.safetensors")["logits"]


def assert_equal_scores(found, expected, inputs):
    seen = inputs.get("attention_mask", torch.ones_like(inputs["input_ids"])).bool()
    torch.testing.assert_close(found[seen], expected[seen], atol=1e-5, rtol=1e-5)
    assert expected.std() > 0.05  # there is something to compare


@pytest.mark.parametrize("name", MODELS)
def test_gives_the_scores_of_transformers(name, tmp_path):
    kind = name.split("-")[0]
    model, inputs = make_model(name, tmp_path / "model"), make_inputs(kind)
    with torch.no_grad():
        expected = model(**inputs).logits
    assert_equal_scores(scores_of_example(kind, tmp_path / "model", inputs, tmp_path), expected, inputs)


@pytest.mark.parametrize("name", ["llama-two-shared-heads", "gpt2", "bert"])
def test_loads_shards_and_16_bits(name, tmp_path):
    kind = name.split("-")[0]
    model, inputs = make_model(name, tmp_path / "sharded", max_shard_size="10KB"), make_inputs(kind)
    assert len(list((tmp_path / "sharded").glob("model-*.safetensors"))) > 1
    with torch.no_grad():
        expected = model(**inputs).logits
    assert_equal_scores(scores_of_example(kind, tmp_path / "sharded", inputs, tmp_path), expected, inputs)

    model.to(torch.bfloat16).save_pretrained(tmp_path / "bf16")
    # Read again: a cast of the model rounds its rotary frequencies too.
    model = type(model).from_pretrained(tmp_path / "bf16", dtype=torch.float32).eval()
    with torch.no_grad():
        expected = model(**inputs).logits
    assert_equal_scores(scores_of_example(kind, tmp_path / "bf16", inputs, tmp_path), expected, inputs)


def test_loads_a_gpt2_without_its_head(tmp_path):
    model = make_model("gpt2", tmp_path / "whole")
    model.transformer.save_pretrained(tmp_path / "body")  # names without the prefix
    with safetensors.safe_open(tmp_path / "body" / "model.safetensors", "pt") as file:
        assert "wte.weight" in file.keys()
    inputs = make_inputs("gpt2")
    with torch.no_grad():
        expected = model(**inputs).logits
    assert_equal_scores(scores_of_example("gpt2", tmp_path / "body", inputs, tmp_path), expected, inputs)


def train(kind, place, model, stage, ranks=1, text="to be or not to be, that is the question\n" * 60):
    (place / "text.txt").write_text(text)
    (place / "ds_config.json").write_text(
        json.dumps(
            {
                "train_micro_batch_size_per_gpu": 4,
                "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
                "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 50},
            }
        )
    )
    options = ["--deepspeed_config", place / "ds_config.json", "--data", place / "text.txt", "--steps", 3, "--output", place / "trained"]
    return run_well(kind, *options, *model, ranks=ranks)


def assert_transformers_reads(kind, place):
    """The trained folder scores in both alike, and has changed nothing of its own form."""
    folder = place / "trained"
    auto = transformers.AutoModelForMaskedLM if kind == "bert" else transformers.AutoModelForCausalLM
    model, report = auto.from_pretrained(folder, output_loading_info=True, attn_implementation="eager")
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), report
    assert type(model) is CLASSES[kind][1] and next(model.parameters()).dtype == torch.float32
    with safetensors.safe_open(folder / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}
    inputs = make_inputs(kind, length=30)
    inputs["input_ids"] %= model.config.vocab_size
    with torch.no_grad():
        expected = model.eval()(**inputs).logits
    assert_equal_scores(scores_of_example(kind, folder, inputs, place), expected, inputs)
    return model


@pytest.mark.parametrize(
    "changes",
    [
        dict(num_key_value_heads=2, rope_parameters=LLAMA3),
        dict(tie_word_embeddings=True, attention_bias=True, head_dim=10, rope_parameters=dict(rope_type="default", rope_theta=77.0)),
    ],
)
def test_writes_a_llama_fine_tuned_at_stage_3_for_transformers(changes, tmp_path):
    config = transformers.LlamaConfig(**{**LLAMA, "vocab_size": 256, **changes})
    before = transformers.LlamaForCausalLM(config)
    before.save_pretrained(tmp_path / "given")
    train("llama", tmp_path, ["--model", tmp_path / "given", "--context", 16], stage=3, ranks=2)
    after = assert_transformers_reads("llama", tmp_path)
    assert after.config.rope_parameters == before.config.rope_parameters
    keys = ("num_key_value_heads", "head_dim", "attention_bias", "tie_word_embeddings", "bos_token_id", "eos_token_id")
    assert all(getattr(after.config, key) == getattr(before.config, key) for key in keys)
    change = (after.model.embed_tokens.weight - before.model.embed_tokens.weight).abs().max()
    assert 0 < change < 0.02  # three steps of AdamW from the given weights


def test_writes_a_pretrained_bert_for_transformers(tmp_path):
    (tmp_path / "new.json").write_text((EXAMPLES / "bert" / "config.json").read_text())
    train("bert", tmp_path, ["--new_model", tmp_path / "new.json", "--context", 16], stage=2, ranks=2)
    assert_transformers_reads("bert", tmp_path)
    (tmp_path / "again").mkdir()
    train("bert", tmp_path / "again", ["--model", tmp_path / "trained", "--context", 16], stage=0)


def test_writes_the_demos_gpt2_for_transformers(tmp_path):
    sizes = ["--width", 36, "--layers", 2, "--heads", 3, "--context", 32]
    train("gpt2", tmp_path, sizes, stage=2, ranks=2)
    assert_transformers_reads("gpt2", tmp_path)
    (tmp_path / "again").mkdir()
    train("gpt2", tmp_path / "again", ["--model", tmp_path / "trained"], stage=3)
    assert_transformers_reads("gpt2", tmp_path / "again")


@pytest.mark.parametrize(
    "name, changes, parts",
    [
        ("llama", dict(rope_parameters=dict(rope_type="yarn", factor=2.0, rope_theta=1e4)), ["rope_parameters", "yarn"]),
        ("llama", dict(hidden_act="gelu"), ["hidden_act", "silu"]),
        ("bert", dict(hidden_act="gelu"), ["hidden_act", "gelu_new"]),
        ("gpt2", dict(scale_attn_by_inverse_layer_idx=True), ["scale_attn_by_inverse_layer_idx"]),
        ("gpt2", dict(my_option=1), ["my_option"]),
    ],
)
def test_refuses_unknown_options(name, changes, parts, tmp_path):
    make_model(name, tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    save_file(make_inputs("llama"), tmp_path / "inputs.safetensors")
    status, output = run(name, "--model", tmp_path / "model", "--inputs", tmp_path / "inputs.safetensors", "--logits", tmp_path / "out")
    assert status != 0 and str(path) in output and all(part in output for part in parts), output
    assert not (tmp_path / "out").exists()
