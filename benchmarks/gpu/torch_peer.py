"""The peer of end_to_end_gpt2_throughput in PyTorch: the same GPT-2, tokens and update, eager or compiled.

    python3 torch_peer.py --layers 12 --heads 12 --width 768 --micro_batch 64 [--compile] [--bf16_weights]

Without --bf16_weights the weights stay in fp32 under autocast to bf16, which keeps what the engine's fp32 masters keep.
With it weights, gradients and moments are bf16: less to move, and small updates are lost. Prints one line of JSON.
"""

import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.c_attn(x).view(batch, length, 3, self.heads, width // self.heads).unbind(2)
        mixed = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True)
        return self.c_proj(mixed.transpose(1, 2).reshape(batch, length, width))


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc = nn.Linear(width, 4 * width)
        self.c_proj = nn.Linear(4 * width, width)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = Mlp(width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.wte = nn.Embedding(options.vocabulary, options.width)
        self.wpe = nn.Embedding(options.context, options.width)
        self.h = nn.ModuleList(Block(options.width, options.heads) for _ in range(options.layers))
        self.ln_f = nn.LayerNorm(options.width)
        for name, parameter in self.named_parameters():
            if name.endswith("weight") and "ln_" not in name:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.size(1), device=tokens.device))
        for block in self.h:
            x = block(x)
        scores = F.linear(self.ln_f(x), self.wte.weight).flatten(0, 1)
        return F.cross_entropy(scores.float(), targets.flatten())


def make_text(step, options):
    length = options.context + 1
    index = torch.arange(options.micro_batch * length)
    return ((index * 7919 + index // 5 + step * 104729) % options.vocabulary).reshape(options.micro_batch, length)


def make_parser(description):
    parser = argparse.ArgumentParser(description=description)
    for name, default in [
        ("layers", 12),
        ("heads", 12),
        ("width", 768),
        ("context", 1024),
        ("vocabulary", 50304),
        ("micro_batch", 8),
        ("steps", 20),
        ("warmup", 5),
    ]:
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--clipping", type=float, default=1.0)
    parser.add_argument("--weights", help="file of the first weights")
    return parser


def read_options():
    parser = make_parser(__doc__)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--bf16_weights", action="store_true")
    return parser.parse_args()


def main():
    options = read_options()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(1)
    model = GPT(options)
    if options.weights:
        model.load_state_dict(torch.load(options.weights, weights_only=True))
    model.to(device, torch.bfloat16 if options.bf16_weights else torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=True)
    run = torch.compile(model) if options.compile else model

    losses, step_ms = [], []
    for step in range(options.warmup + options.steps):
        text = make_text(step, options).to(device)
        tokens, targets = text[:, :-1].contiguous(), text[:, 1:].contiguous()
        start = time.perf_counter()
        with torch.autocast(device, torch.bfloat16, enabled=not options.bf16_weights):
            loss = run(tokens, targets)
        loss.backward()
        if options.clipping > 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), options.clipping)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.detach())
        model.ln_f.bias.detach()[0].item()  # waits for the device
        step_ms.append(1e3 * (time.perf_counter() - start))

    median = statistics.median(step_ms[options.warmup :])
    print(
        json.dumps(
            {
                "parameters": sum(parameter.numel() for parameter in model.parameters()),
                "device": device,
                "step_ms": median,
                "tokens_per_s": 1e3 * options.micro_batch * options.context / median,
                "peak_bytes": torch.cuda.max_memory_allocated() if device == "cuda" else 0,
                "losses": [loss.item() for loss in losses],
            }
        )
    )


if __name__ == "__main__":
    main()
