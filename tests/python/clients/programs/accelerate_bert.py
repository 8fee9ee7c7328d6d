"""Trains a small BERT under Accelerate; what its argument says chooses stage, offload, precision, optimizer and schedule.

It runs on this package and on DeepSpeed itself: the losses of both are compared.
"""

import json
import os
import sys

import torch
from accelerate import Accelerator, DeepSpeedPlugin
from accelerate.utils import DummyOptim, DummyScheduler, InitProcessGroupKwargs, set_seed
from transformers import BertConfig, BertForSequenceClassification


def architecture():
    return BertConfig(
        vocab_size=50,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=32,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=2,
    )


def make_model():
    torch.manual_seed(11)
    return BertForSequenceClassification(architecture())


class Texts(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        tokens = (torch.arange(12) * (1 + index % 3) + index) % 50
        return {"input_ids": tokens, "attention_mask": torch.ones(12, dtype=torch.long), "labels": torch.tensor(index % 2)}


def config_of(options):
    config = {
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "zero_optimization": {
            "stage": options["stage"],
            "reduce_bucket_size": "auto",
            "stage3_prefetch_bucket_size": "auto",
            "stage3_param_persistence_threshold": "auto",
            "stage3_gather_16bit_weights_on_model_save": True,
        },
        "steps_per_print": float("inf"),
    }
    if options.get("names_batch"):
        config["train_batch_size"] = "auto"
    if options["dtype"] == "bf16":
        config["bf16"] = {"enabled": "auto"}
    for name in ("offload_optimizer", "offload_param"):
        if options.get(name):
            config["zero_optimization"][name] = {"device": options[name], "nvme_path": options.get("folder")}
    if options["optimizer"] == "config":
        config["optimizer"] = {"type": "AdamW", "params": {"lr": "auto", "weight_decay": "auto", "torch_adam": True, "adam_w_mode": True}}
    if options["schedule"] == "config":
        config["scheduler"] = {
            "type": "WarmupDecayLR",
            "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto", "total_num_steps": "auto"},
        }
    return config


def main():
    options = json.loads(sys.argv[1])
    plugin = DeepSpeedPlugin(hf_ds_config=config_of(options), gradient_accumulation_steps=2)
    accelerator = Accelerator(
        mixed_precision=options["dtype"] if options["dtype"] != "fp32" else "no",
        deepspeed_plugin=plugin,
        gradient_accumulation_steps=2,
        kwargs_handlers=[InitProcessGroupKwargs(backend=backend)] if (backend := options.get("backend", "gloo")) else [],
    )
    set_seed(1)
    model = make_model()
    loader = torch.utils.data.DataLoader(Texts(), batch_size=4)
    if options["optimizer"] == "config":
        optimizer = DummyOptim(model.parameters(), lr=1e-3, weight_decay=0.01)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    if options["schedule"] == "config":
        schedule = DummyScheduler(optimizer, total_num_steps=40, warmup_num_steps=2)
    elif options["optimizer"] == "config":
        schedule = DummyScheduler(
            optimizer, lr_scheduler_callable=lambda made: torch.optim.lr_scheduler.LambdaLR(made, lambda step: 1.0 / (1 + 0.1 * step))
        )
    else:
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 / (1 + 0.1 * step))
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    assert accelerator.num_processes == int(os.environ["WORLD_SIZE"])
    losses, rates = [], []

    def train_epoch():
        for batch in loader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            losses.append(accelerator.gather(loss.detach().float().reshape(1)).mean().item())
            rates.append(optimizer.param_groups[0]["lr"])

    train_epoch()
    folder = options["save"]
    accelerator.save_state(folder)
    accelerator.wait_for_everyone()
    train_epoch()
    after = losses[-8:]
    accelerator.load_state(folder)
    del losses[-8:], rates[-8:]
    train_epoch()
    resumed = losses[-8:]
    state = accelerator.get_state_dict(model)
    if accelerator.is_main_process:
        keys = sorted(state)
        sums = {key: float(value.float().sum()) for key, value in state.items()}
        print(
            "RESULT " + json.dumps({"losses": losses, "rates": rates, "after": after, "resumed": resumed, "keys": len(keys), "sums": sums}),
            flush=True,
        )


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
