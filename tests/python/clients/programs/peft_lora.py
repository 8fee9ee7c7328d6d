"""Trains the LoRA adapters of a Hugging Face model, and saves them alone."""

import json
import os
import sys

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

import deepspeed


def main():
    options = json.loads(sys.argv[1])
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
    )
    model = get_peft_model(model, LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "torch_adam": True}},
        "zero_optimization": {"stage": options["stage"], "stage3_param_persistence_threshold": 0},
    }
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=[param for param in model.parameters() if param.requires_grad], config=config
    )
    losses = []
    for step in range(6):
        tokens = (torch.arange(12) * (1 + int(os.environ["RANK"])) + torch.arange(4).unsqueeze(1) * 5 + step) % 64
        loss = engine(input_ids=tokens, labels=tokens).loss
        engine.backward(loss)
        engine.step()
        mean = loss.detach().clone()
        deepspeed.comm.all_reduce(mean)
        losses.append(mean.item() / deepspeed.comm.get_world_size())
    engine.save_checkpoint(options["folder"], exclude_frozen_parameters=True)
    with deepspeed.zero.GatheredParameters(list(model.parameters())):
        adapters = {name: float(param.norm()) for name, param in model.named_parameters() if "lora" in name}
    if os.environ["RANK"] == "0":
        from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

        saved = get_fp32_state_dict_from_zero_checkpoint(options["folder"], exclude_frozen_parameters=True)
        result = dict(losses=losses, adapters=adapters, saved={name: float(tensor.norm()) for name, tensor in saved.items()})
        print("RESULT " + json.dumps(result), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
