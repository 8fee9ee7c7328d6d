"""Trains a small Llama by the trainers of TRL: SFT, DPO and GRPO, with an engine or by torch alone."""

import json
import os
import sys
import warnings

import torch
from accelerate import PartialState

warnings.simplefilter("ignore")
_prepare = PartialState._prepare_backend
# Accelerate since 1.13 chooses no backend on a CPU, and the Trainer resets what a script has chosen.
PartialState._prepare_backend = lambda self, *given, **named: ("gloo", _prepare(self, *given, **named)[1])

from datasets import Dataset  # noqa: E402
from peft import LoraConfig  # noqa: E402
from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, TrainerCallback, set_seed  # noqa: E402
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer  # noqa: E402

WORDS = [f"w{index}" for index in range(60)]


def make_tokenizer():
    vocabulary = {word: index for index, word in enumerate(["<pad>", "<eos>", "<unk>", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")


def saved_model(folder):
    """Returns the folder of a model, since trainers that need a second one load it again."""
    set_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=64,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def text(*places):
    return " ".join(WORDS[place % len(WORDS)] for place in places)


def texts(row):
    prompt = text(row, 3 * row + 1, 5)
    return dict(prompt=prompt + " ", chosen=text(7 * row, row + 2, 9, row), rejected=text(11, 2 * row))


def sft_data():
    return Dataset.from_list([{"prompt": texts(row)["prompt"], "completion": texts(row)["chosen"]} for row in range(16)])


def dpo_data():
    return Dataset.from_list([texts(row) for row in range(16)])


def grpo_data():
    return Dataset.from_list([{"prompt": texts(row)["prompt"]} for row in range(16)])


def share_of_early_words(completions, **_):
    """Rewards words of the first half of the vocabulary."""
    found = [[word in WORDS[:30] for word in completion.split()] for completion in completions]
    return [sum(one) / max(len(one), 1) for one in found]


def lora():
    return LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", init_lora_weights=False)


TRAINERS = {
    "sft": (SFTTrainer, SFTConfig, {}, lambda: dict(train_dataset=sft_data())),
    "sft_whole_logits": (SFTTrainer, SFTConfig, {"label_smoothing_factor": 0.1}, lambda: dict(train_dataset=sft_data())),
    "sft_lora": (SFTTrainer, SFTConfig, {}, lambda: dict(train_dataset=sft_data(), peft_config=lora())),
    "dpo": (DPOTrainer, DPOConfig, {}, lambda: dict(train_dataset=dpo_data())),
    "dpo_lora": (DPOTrainer, DPOConfig, {}, lambda: dict(train_dataset=dpo_data(), peft_config=lora())),
    "grpo": (
        GRPOTrainer,
        GRPOConfig,
        {"num_generations": 2, "max_completion_length": 6, "beta": 0.1, "temperature": 1.0},
        lambda: dict(train_dataset=grpo_data(), reward_funcs=share_of_early_words),
    ),
}


class Losses(TrainerCallback):
    def __init__(self):
        self.lines = []

    def on_log(self, args, state, control, logs=None, **_):
        if "loss" in logs:
            self.lines.append([float(logs["loss"]), float(logs["grad_norm"])])


def config_of(stage):
    return {
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
    }


def train(name, model, options):
    kind, arguments, more, given = TRAINERS[name]
    losses = Losses()
    trainer = kind(
        model=model,
        processing_class=make_tokenizer(),
        callbacks=[losses],
        args=arguments(
            output_dir=options["folder"],
            per_device_train_batch_size=2,
            gradient_accumulation_steps=2,
            max_steps=3,
            logging_steps=1,
            learning_rate=1e-2,
            lr_scheduler_type="constant",
            adam_epsilon=1e-3,
            bf16=False,
            use_cpu=True,
            save_strategy="no",
            report_to=[],
            seed=0,
            disable_tqdm=True,
            deepspeed=config_of(options["stage"]) if options["stage"] is not None else None,
            **more,
        ),
        **given(),
    )
    trainer.train()
    return losses.lines


def main():
    options = json.loads(sys.argv[1])
    model = saved_model(options["folder"] + "/model-" + os.environ["RANK"])
    results = {name: train(name, model, options) for name in options.get("trainers") or TRAINERS}
    if int(os.environ["RANK"]) == 0:
        print("RESULT " + json.dumps(results), flush=True)
    if options["stage"] is None:
        torch.distributed.destroy_process_group()  # its threads outlive the process else


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
