"""Trains a small GPT with tied embeddings as a pipeline on two ranks, and prints what it saw as one line of JSON.

    train_pipeline.py '{"stages": 2, "dtype": "fp32", ...}'

The same program runs on DeepSpeed itself: tests/golden/write_pipeline_losses.py records its losses. With "plain" it trains the
same layers by torch alone, on all of the data.
"""

import hashlib
import json
import os
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

import deepspeed
from deepspeed.pipe import LayerSpec, PipelineModule, TiedLayerSpec

VOCABULARY, WIDTH, HEADS, LENGTH, MICRO_BATCHES, STEPS = 64, 32, 2, 16, 4, 12
ROWS = 8  # of a batch, over all ranks


class Embedding(nn.Module):
    """Gives the hidden states, and the positions, which need no gradient."""

    def __init__(self):
        super().__init__()
        self.word = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):
        return F.embedding(tokens, self.word.weight), torch.arange(tokens.size(1)).expand_as(tokens).contiguous()


class Position(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(LENGTH, WIDTH)

    def forward(self, values):
        hidden, positions = values
        return hidden + self.table(positions)


class Block(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(dropout))

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = (part.view(batch, length, HEADS, -1).transpose(1, 2) for part in self.qkv(self.ln_1(x)).split(WIDTH, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.mlp(self.ln_2(x))


def logits_of(embedding, hidden):
    return F.linear(hidden, embedding.word.weight)


def loss_of(logits, targets):
    return F.cross_entropy(logits.float().view(-1, VOCABULARY), targets.reshape(-1))


def make_layers(dropout, blocks=4):
    return [
        TiedLayerSpec("embed", Embedding, tied_weight_attr="word.weight"),
        LayerSpec(Position),
        *[LayerSpec(Block, dropout) for _ in range(blocks)],
        LayerSpec(nn.LayerNorm, WIDTH),
        TiedLayerSpec("embed", Embedding, forward_fn=logits_of, tied_weight_attr="word.weight"),
    ]


def fill(module):
    """Gives each parameter values that its name decides on, so that every cut of the model begins alike."""
    for name, param in module.named_parameters():
        if name.endswith("bias"):
            param.data.zero_()
        elif param.dim() > 1:
            seed = int(hashlib.sha256(name.encode()).hexdigest()[:8], 16)
            param.data.copy_(torch.empty(param.shape).normal_(0.0, 0.05, generator=torch.Generator().manual_seed(seed)))


def micro_batch(number, part, rows):
    """Returns the tokens of some rows of a micro batch, and those that follow."""
    begin = part * rows + torch.arange(rows)[:, None] + ROWS * number
    text = (begin * 7 + torch.arange(LENGTH + 1) * (3 + begin % 5)) % VOCABULARY
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


def data(part, rows):
    for number in range(10**6):
        yield micro_batch(number, part, rows)


def plain(options):
    """Returns the losses of the same layers without a pipeline."""
    layers = make_layers(0.0)
    torch.manual_seed(0)
    embedding = layers[0].build()
    model = nn.ModuleDict({"tied_modules": nn.ModuleDict({"embed": embedding})})
    for index, spec in enumerate(layers[1:-1], 1):
        model[str(index)] = spec.build()
    fill(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003, weight_decay=0.01)
    losses = []
    for step in range(STEPS):
        total = 0.0
        for number in range(MICRO_BATCHES):
            tokens, targets = micro_batch(step * MICRO_BATCHES + number, 0, ROWS // MICRO_BATCHES)
            value = embedding(tokens)
            for index in range(1, len(layers) - 1):
                value = model[str(index)](value)
            loss = loss_of(logits_of(embedding, value), targets) / MICRO_BATCHES
            loss.backward()
            total += loss.item()
        if options.get("clip"):
            torch.nn.utils.clip_grad_norm_(model.parameters(), options["clip"])
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total)
    return {"losses": losses}


def config_of(options, replicas):
    config = {
        "train_micro_batch_size_per_gpu": ROWS // MICRO_BATCHES // replicas,
        "gradient_accumulation_steps": MICRO_BATCHES,
        "optimizer": options.get("optimizer", {"type": "AdamW", "params": {"lr": 0.003, "weight_decay": 0.01, "torch_adam": True}}),
        "zero_optimization": {"stage": options.get("zero", 0)},
        "gradient_clipping": options.get("clip", 0.0),
        "pipeline": options.get("pipeline", {}),
        "steps_per_print": options.get("prints_every", 1000),
    }
    if options.get("dtype"):
        config[options["dtype"]] = {"enabled": True}
    if options.get("sums"):
        config["data_types"] = {"grad_accum_dtype": options["sums"]}
    return config


def train(options):
    deepspeed.init_distributed("gloo")
    stages, ranks = options["stages"], int(os.environ["WORLD_SIZE"])
    extra = {"model_chunks": options["chunks"]} if "chunks" in options else {}
    torch.manual_seed(0)
    model = PipelineModule(
        layers=make_layers(options.get("dropout", 0.0), options.get("blocks", 4)),
        num_stages=stages,
        loss_fn=loss_of,
        partition_method=options.get("partition", "type:block"),
        seed_layers=options.get("seed_layers", False),
        seed_fn=torch.manual_seed,
        activation_checkpoint_interval=options.get("interval", 0),
        **extra,
    )
    fill(model)
    replicas = ranks // stages
    engine = deepspeed.initialize(model=model, model_parameters=[*model.parameters()], config=config_of(options, replicas))[0]
    source = data(engine.grid.get_data_parallel_id(), ROWS // MICRO_BATCHES // replicas)
    if options.get("load"):
        path, _ = engine.load_checkpoint(options["load"])
        assert path is not None, options["load"]
        for _ in range(engine.global_steps * MICRO_BATCHES):
            next(source)
    losses = []
    while engine.global_steps < options.get("steps", STEPS):
        losses.append(engine.train_batch(source).item())
        if engine.global_steps == options.get("save_at"):
            engine.save_checkpoint(options["save"], tag="saved")
    evaluated = engine.eval_batch(source).item()
    names = [name for name, _ in model.named_parameters()]
    return {"losses": losses, "eval": evaluated, "parts": [int(part) for part in model.parts], "names": names}


if __name__ == "__main__":
    torch.set_num_threads(1)
    given = json.loads(sys.argv[1])
    found = plain(given) if given.get("plain") else train(given)
    if os.environ.get("RANK", "0") == "0":
        print("RESULT " + json.dumps(found), flush=True)
