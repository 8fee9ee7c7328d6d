"""Trains a small Llama by the Trainer of Transformers: trains, evaluates, saves, resumes, reads the weights again."""

import json
import os
import sys
import warnings

import torch
from accelerate import PartialState

import deepspeed

warnings.simplefilter("ignore")
_prepare = PartialState._prepare_backend
# Accelerate since 1.13 chooses no backend on a CPU, and the Trainer resets what a script has chosen.
PartialState._prepare_backend = lambda self, *given, **named: ("gloo", _prepare(self, *given, **named)[1])

from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments, set_seed  # noqa: E402


def config_of(options):
    config = {
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "bf16": {"enabled": "auto"},
        "fp16": {"enabled": "auto"},
        "zero_optimization": {
            "stage": options["stage"],
            "reduce_bucket_size": "auto",
            "stage3_prefetch_bucket_size": "auto",
            "stage3_param_persistence_threshold": "auto",
            "stage3_gather_16bit_weights_on_model_save": True,
        },
        "optimizer": {
            "type": "AdamW",
            "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto", "torch_adam": True},
        },
        "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto"}},
    }
    for name in ("optimizer", "scheduler"):
        if name in options:  # None: the Trainer's own
            config[name] = options[name]
    return {key: value for key, value in config.items() if value is not None}


class Log(TrainerCallback):
    def __init__(self):
        self.lines = []

    def on_log(self, args, state, control, logs=None, **_):
        if "loss" in logs:
            self.lines.append((float(logs["loss"]), float(logs["grad_norm"]), float(logs["learning_rate"])))


def make_model():
    set_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=120,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=32,
            tie_word_embeddings=True,
        )
    )


def main():
    options = json.loads(sys.argv[1])
    folder = options["folder"]
    generator = torch.Generator().manual_seed(1)
    data = [dict(input_ids=row, labels=row) for row in torch.randint(0, 120, (96, 16), generator=generator)]

    def train(model, **resume):
        log = Log()
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
            max_steps=6,
            logging_steps=1,
            save_steps=3,
            learning_rate=1e-3,
            warmup_steps=2,
            lr_scheduler_type="constant_with_warmup",
            report_to=[],
            deepspeed=config_of(options),
            seed=0,
            disable_tqdm=True,
        )
        trainer = Trainer(model=model, args=arguments, train_dataset=data, eval_dataset=data[:16], callbacks=[log])
        trainer.train(**resume)
        return trainer, log.lines

    if options.get("evaluates_alone"):
        arguments = TrainingArguments(output_dir=folder, warmup_steps=0, report_to=[], deepspeed=config_of(options), disable_tqdm=True)
        loss = Trainer(model=make_model(), args=arguments, eval_dataset=data[:16]).evaluate()["eval_loss"]
        if int(os.environ["RANK"]) == 0:
            print("RESULT " + json.dumps(dict(eval=loss)), flush=True)
        return
    trainer, lines = train(make_model())
    evaluated = trainer.evaluate()["eval_loss"]
    trainer.save_model(folder + "/final")
    del trainer
    resumed_trainer, resumed = train(make_model(), resume_from_checkpoint=folder + "/checkpoint-3")
    torch.distributed.barrier()
    trained = list(resumed_trainer.model.parameters())
    again = LlamaForCausalLM.from_pretrained(folder + "/final")
    with deepspeed.zero.GatheredParameters(list(again.parameters()) + trained):
        sums = [sum(param.float().norm().item() for param in params) for params in (again.parameters(), trained)]
    is_partitioned = hasattr(next(again.parameters()), "ds_id")
    again.resize_token_embeddings(128)
    rows = again.get_input_embeddings().weight.shape[0]
    if int(os.environ["RANK"]) == 0:
        result = dict(lines=lines, eval=evaluated, resumed=resumed, sums=sums, is_partitioned=is_partitioned, rows=rows)
        print("RESULT " + json.dumps(result), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
