"""Trains a small BERT in the way that the environment of `accelerate launch` says: the script itself chooses no engine.

    accelerate launch --config_file config.yaml launched_bert.py '{"dummies": false, "save": "folder"}'

It runs on this package and on DeepSpeed itself: the losses of both are compared.
"""

import json
import sys

import torch
from accelerate import Accelerator
from accelerate.utils import DummyOptim, DummyScheduler, InitProcessGroupKwargs
from accelerate_bert import Texts, architecture
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification


def objects_of(options, model):
    """Returns optimizer and schedule: placeholders where the file of DeepSpeed's config has both sections."""
    if options["dummies"]:
        optimizer = DummyOptim(model.parameters(), lr=1e-3, weight_decay=0.01)
        return optimizer, DummyScheduler(optimizer, total_num_steps=40, warmup_num_steps=2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 / (1 + 0.1 * step))


def norm_of_saved(accelerator, model, folder):
    """Saves the whole weights as scripts of Accelerate do; returns the norm of all that rank 0 finds in the file."""
    state = accelerator.get_state_dict(model)
    accelerator.unwrap_model(model).save_pretrained(
        folder, is_main_process=accelerator.is_main_process, save_function=accelerator.save, state_dict=state
    )
    if not accelerator.is_main_process:
        return None
    saved = load_file(f"{folder}/model.safetensors")
    return torch.cat([weight.double().flatten() for weight in saved.values()]).norm().item()


def main():
    options = json.loads(sys.argv[1])
    accelerator = Accelerator(kwargs_handlers=[InitProcessGroupKwargs(backend="gloo")])
    torch.manual_seed(11)
    model = AutoModelForSequenceClassification.from_config(architecture())
    is_partitioned = hasattr(next(model.parameters()), "ds_id")
    loader = torch.utils.data.DataLoader(Texts(), batch_size=4)
    optimizer, schedule = objects_of(options, model)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    losses = []
    for _ in range(2):
        for batch in loader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            losses.append(accelerator.gather(loss.detach().float().reshape(1)).mean().item())
    norm = norm_of_saved(accelerator, model, options["save"])
    if accelerator.is_main_process:
        result = dict(
            losses=losses,
            is_partitioned=is_partitioned,
            processes=accelerator.num_processes,
            zero=accelerator.deepspeed_plugin.zero_stage,
            norm=norm,
        )
        print("RESULT " + json.dumps(result), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
