"""Trains a small GPT on text that a formula makes, and prints what it saw as one line of JSON.

    train_gpt.py '{"stage": 2, "dtype": "fp32", ...}'

The same program runs on DeepSpeed itself: tests/golden/write_python_losses.py records its losses.
"""

import json
import math
import os
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

import deepspeed

VOCABULARY, WIDTH, HEADS, LENGTH = 64, 32, 2, 16


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = (part.view(batch, length, HEADS, -1).transpose(1, 2) for part in self.qkv(self.ln_1(x)).split(WIDTH, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """Has tied embeddings and one frozen parameter."""

    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCABULARY, WIDTH)
        self.wpe = nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.ln_f = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.wte.weight
        self.wpe.weight.requires_grad_(False)
        generator = torch.Generator().manual_seed(7)
        for param in self.parameters():
            if param.dim() > 1:
                param.data.normal_(0.0, 0.05, generator=generator)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.size(1)))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.ln_f(x))
        return F.cross_entropy(logits.float().view(-1, VOCABULARY), targets.reshape(-1))


def batch_of(step, rank, size=4):
    """Returns tokens and targets: a periodic text, whose phase the sample chooses."""
    start = (1000 * step + 10 * rank + torch.arange(size)).unsqueeze(1)
    text = (start * 7 + torch.arange(LENGTH + 1) * (1 + start % 5)) % VOCABULARY
    return text[:, :-1], text[:, 1:]


def groups_of(model):
    named = [(name, param) for name, param in model.named_parameters() if param.requires_grad]
    return [
        {"params": [param for _, param in named if param.dim() > 1], "weight_decay": 0.1},
        {"params": [param for _, param in named if param.dim() <= 1], "weight_decay": 0.0},
    ]


def config_of(options):
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 2,
        "gradient_clipping": 0.5,
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {"stage": options["stage"], "reduce_bucket_size": 5000},
        "steps_per_print": 1000000,
    }
    if options["stage"] == 3:
        config["zero_optimization"]["stage3_param_persistence_threshold"] = 100
    if options.get("offload"):
        section = {"device": options["offload"]}
        if options["offload"] == "nvme":
            section["nvme_path"] = options["folder"]
        config["zero_optimization"]["offload_optimizer"] = section
    if options.get("dtype", "fp32") != "fp32":
        config[options["dtype"]] = {"enabled": True}
    if options.get("client") is None:
        config["optimizer"] = {"type": "AdamW", "params": {"lr": 3e-3, "betas": [0.9, 0.95], "weight_decay": 0.1, "torch_adam": True}}
    if options.get("schedule", "config") == "config":
        config["scheduler"] = {
            "type": "WarmupCosineLR",
            "params": {"total_num_steps": 40, "warmup_num_steps": 4, "warmup_min_ratio": 0.1},
        }
    return config


def client_of(options, groups):
    """Returns the optimizer that the options name, made by the script."""
    name = options.get("client")
    if name is None:
        return None
    if name == "Adam":
        return torch.optim.Adam(groups, lr=3e-3, betas=(0.9, 0.95))
    if name == "AdamW":
        return torch.optim.AdamW(groups, lr=3e-3, betas=(0.9, 0.95))
    return getattr(torch.optim, name)(groups, lr=3e-3)


def make_engine(options):
    torch.manual_seed(3)
    model = GPT()
    groups = groups_of(model)
    client = client_of(options, groups)
    schedule = None
    if options.get("schedule") == "lambda":
        schedule = lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 / (1 + step))  # noqa: E731
    elif options.get("schedule") == "object":
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(client, T_max=30)
    return deepspeed.initialize(
        model=model,
        optimizer=client,
        model_parameters=None if client is not None else groups,
        lr_scheduler=schedule,
        config=config_of(options),
    )


def main():
    options = json.loads(sys.argv[1])
    deepspeed.init_distributed(dist_backend="gloo")
    deepspeed.get_accelerator().is_fp16_supported = lambda: True  # DeepSpeed refuses a CPU without instructions for it
    engine, optimizer, _, _ = make_engine(options)
    first = 0
    if options.get("load"):
        _, state = engine.load_checkpoint(options["load"])
        first = state["micro"]
    losses, rates, norms = [], [], []
    for micro in range(first, options.get("micro_steps", 20)):
        loss = engine(*batch_of(micro, deepspeed.comm.get_rank()))
        if options.get("direct"):
            loss.backward()
        else:
            engine.backward(loss)
        engine.step()
        mean = loss.detach().clone().double()
        deepspeed.comm.all_reduce(mean)
        losses.append(mean.item() / deepspeed.comm.get_world_size())
        rates.append(optimizer.param_groups[0]["lr"])
        norm = engine.get_global_grad_norm()
        norms.append(None if norm is None else float(norm))
        if options.get("save") and micro + 1 == options["save_after"]:
            engine.save_checkpoint(options["save"], client_state={"micro": micro + 1})
    assert all(math.isfinite(loss) for loss in losses)
    if deepspeed.comm.get_rank() == 0:
        print("RESULT " + json.dumps({"losses": losses, "rates": rates, "norms": norms}), flush=True)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    torch.set_num_threads(1)
    main()
