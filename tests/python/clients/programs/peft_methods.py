"""Trains a small Llama by each method of PEFT that its arguments name, with an engine and by torch alone, and compares both."""

import json
import os
import sys
import warnings

import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.integrations import HfDeepSpeedConfig

import deepspeed

warnings.simplefilter("ignore")

import peft  # noqa: E402

STEPS = 3
ALL_LINEAR = ["q_proj", "v_proj", "down_proj"]


def tuned(kind, **named):
    return lambda: getattr(peft, kind)(task_type="CAUSAL_LM", **{"target_modules": ALL_LINEAR, **named})


def prompt(kind, **named):
    return lambda: getattr(peft, kind)(task_type="CAUSAL_LM", num_virtual_tokens=4, **named)


METHODS = {
    "lora": tuned("LoraConfig", r=4, bias="all"),
    "lora_random": tuned("LoraConfig", r=4, init_lora_weights=False, use_rslora=True),
    "lora_modules_to_save": tuned("LoraConfig", r=4, modules_to_save=["lm_head", "input_layernorm"]),
    "lora_parameters": tuned("LoraConfig", r=4, target_modules=["q_proj"], target_parameters=["mlp.up_proj.weight"]),
    "lora_tokens": tuned("LoraConfig", r=4, trainable_token_indices=[1, 5, 7]),
    "lora_embedding": tuned("LoraConfig", r=4, target_modules=["embed_tokens", "q_proj"]),
    "dora": tuned("LoraConfig", r=4, use_dora=True),
    "pissa": tuned("LoraConfig", r=4, init_lora_weights="pissa"),
    "olora": tuned("LoraConfig", r=4, init_lora_weights="olora"),
    "adalora": tuned("AdaLoraConfig", init_r=6, target_r=4, tinit=0, tfinal=1, total_step=STEPS),
    "adaption_prompt": lambda: peft.AdaptionPromptConfig(task_type="CAUSAL_LM", adapter_len=4, adapter_layers=2),
    "beft": tuned("BeftConfig"),
    "boft": tuned("BOFTConfig"),
    "c3a": tuned("C3AConfig", block_size=16),
    "cartridge": prompt("CartridgeConfig"),
    "deft": tuned("DeftConfig", r=4),
    "delora": tuned("DeloraConfig", r=4),
    "fourierft": tuned("FourierFTConfig", n_frequency=50),
    "frod": tuned("FrodConfig", progressbar=False),
    "glora": tuned("GloraConfig", r=4),
    "gralora": tuned("GraloraConfig", r=4),
    "hira": tuned("HiraConfig", r=4),
    "hra": tuned("HRAConfig", r=4),
    "ia3": tuned("IA3Config", feedforward_modules=["down_proj"]),
    "lily": tuned("LilyConfig", r=4),
    "ln_tuning": tuned("LNTuningConfig", target_modules=["input_layernorm", "post_attention_layernorm"]),
    "loha": tuned("LoHaConfig", r=4),
    "lokr": tuned("LoKrConfig", r=4),
    "miss": tuned("MissConfig", r=4),
    "multitask_prompt_tuning": prompt("MultitaskPromptTuningConfig", num_tasks=2),
    "oft": tuned("OFTConfig", r=4, oft_block_size=0),
    "osf": tuned("OSFConfig", effective_rank=8),
    "p_tuning": prompt("PromptEncoderConfig", encoder_hidden_size=16),
    "peanut": tuned("PeanutConfig", r=4),
    "poly": tuned("PolyConfig", r=4, n_tasks=2, n_skills=2),
    "prefix_tuning": prompt("PrefixTuningConfig"),
    "prompt_tuning": prompt("PromptTuningConfig"),
    "psoft": tuned("PsoftConfig", r=4),
    "pvera": tuned("PveraConfig", r=4),
    "randlora": tuned("RandLoraConfig", r=4),
    "road": tuned("RoadConfig", group_size=8),
    "shadow": lambda: peft.ShadowConfig(task_type="CAUSAL_LM", r=4, shadow_dropout=0.0),
    "shira": tuned("ShiraConfig", r=2, random_seed=3),
    "supertuning": tuned("SupertuningConfig", sparsity=0.9),
    "tinylora": tuned("TinyLoraConfig"),
    "trainable_tokens": lambda: peft.TrainableTokensConfig(task_type="CAUSAL_LM", token_indices=[1, 5, 7], target_modules=["embed_tokens"]),
    "unilora": tuned("UniLoraConfig"),
    "vblora": tuned("VBLoRAConfig", num_vectors=8, vector_length=16),
    "vera": tuned("VeraConfig", r=4),
    "waveft": tuned("WaveFTConfig", n_frequency=50),
}


def config_of(stage):
    return {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_clipping": 0.0,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "eps": 1e-3, "weight_decay": 0.0, "torch_adam": True}},
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
    }


def make_base():
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=48,
            hidden_size=32,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=64,
        )
    )


def adapted(base, name):
    torch.manual_seed(1)
    return peft.get_peft_model(base, METHODS[name]())


def loss_of(model, name, step, rank):
    torch.manual_seed(100 * step + rank)  # some methods draw in forward
    tokens = torch.randint(0, 48, (2, 10))
    more = {"task_ids": torch.tensor([0, 1])} if name in ("multitask_prompt_tuning", "poly") else {}
    torch.manual_seed(100 * step + rank)
    return model(input_ids=tokens, labels=tokens, **more).loss


def trained_alone(name, ranks):
    model = adapted(make_base(), name)
    trained = [param for param in model.parameters() if param.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-2, eps=1e-3, weight_decay=0.0)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        total = sum(loss_of(model, name, step, rank) for rank in range(ranks)) / ranks
        total.backward()
        optimizer.step()
        losses.append(total.item())
    return losses, {key: param.detach() for key, param in model.named_parameters()}


def trained_by_an_engine(name, options):
    config = config_of(options["stage"])
    if options["init"]:
        with deepspeed.zero.Init(config_dict_or_path=config):
            base = make_base()
    else:
        base = make_base()
    model = adapted(base, name)
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=[param for param in model.parameters() if param.requires_grad], config=config
    )
    losses = []
    for step in range(STEPS):
        loss = loss_of(engine, name, step, deepspeed.comm.get_rank())
        engine.backward(loss)
        engine.step()
        mean = loss.detach().clone()
        deepspeed.comm.all_reduce(mean)
        losses.append(mean.item() / deepspeed.comm.get_world_size())
    with deepspeed.zero.GatheredParameters(list(model.parameters())):
        weights = {key: param.detach().clone() for key, param in model.named_parameters()}
    engine.destroy()
    return losses, weights


def difference(name, options):
    """Returns the largest difference of a loss or a weight from those of torch alone."""
    expected, plain = trained_alone(name, deepspeed.comm.get_world_size())
    found, weights = trained_by_an_engine(name, options)
    assert list(weights) == list(plain), "other parameters"
    assert any(not torch.equal(value, first) for value, first in zip(plain.values(), adapted(make_base(), name).parameters()))
    worst = max(float((weights[key].float() - plain[key].float()).abs().max()) for key in plain if plain[key].numel())
    return max(worst, *(abs(a - b) for a, b in zip(found, expected)))


def main():
    options = json.loads(sys.argv[1])
    deepspeed.init_distributed(dist_backend="gloo")
    results = {}
    for name in options.get("methods") or METHODS:
        # Some methods gather what they read of the model where Transformers says that stage 3 is on; those of tokens, on a GPU alone.
        says_stage_3 = options["init"] and "tokens" not in name
        hold = HfDeepSpeedConfig(config_of(3)) if says_stage_3 else None
        try:
            results[name] = difference(name, options)
        except Exception as error:
            results[name] = f"{type(error).__name__}: {error}"
        del hold
        if not all_agree(results[name]):
            break
    if os.environ["RANK"] == "0":
        print("RESULT " + json.dumps(results), flush=True)


def all_agree(result):
    """Returns whether all ranks have a number, or none has; else they no longer meet in the next collective."""
    failed = [None] * deepspeed.comm.get_world_size()
    torch.distributed.all_gather_object(failed, isinstance(result, str))
    return len(set(failed)) == 1


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
