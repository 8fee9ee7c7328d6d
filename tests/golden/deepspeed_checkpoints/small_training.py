"""The model of the checkpoints here and its training in DeepSpeed. tests/support/small_net.h is the model's C++ twin."""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "deepspeed_training"))

import formula  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

MICRO_BATCH, CONTEXT, VOCABULARY, WIDTH = 4, 6, 7, 5
WEIGHT_SCALE = 0.5
VARIANTS = {  # what is special in the model or in the optimizer's groups
    "golden": {"frozen": True, "tied": True, "groups": False},
    "plain": {"frozen": False, "tied": False, "groups": False},
    "frozen": {"frozen": True, "tied": False, "groups": False},
    "shared": {"frozen": False, "tied": True, "groups": False},
    "groups": {"frozen": False, "tied": False, "groups": True},
}


class SmallNet(nn.Module):
    def __init__(self, frozen=True, tied=True):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.frozen = nn.Linear(WIDTH, WIDTH)
        self.hidden = nn.Linear(WIDTH, WIDTH)
        self.gain = nn.Parameter(torch.empty(1))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        if tied:
            self.head.weight = self.embed.weight
        self.register_buffer("scale", torch.linspace(0.5, 1.5, WIDTH))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.frozen.requires_grad_(not frozen)

    def forward(self, tokens, targets):
        self.calls += 1
        x = self.embed(tokens)
        x = x + self.frozen(x) * self.scale.to(x.dtype)
        x = x + torch.tanh(self.hidden(x)) * (1 + self.gain)
        return F.cross_entropy(self.head(x).float().flatten(0, 1), targets.flatten())


def ds_config(stage, dtype, micro_batch=MICRO_BATCH):
    config = {
        "train_micro_batch_size_per_gpu": micro_batch,
        "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.01, "warmup_num_steps": 4, "warmup_type": "linear"}},
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": stage},
    }
    if stage == 3:  # DeepSpeed's default threshold would keep all of this model whole
        config["zero_optimization"]["stage3_param_persistence_threshold"] = 0
    if dtype == "bf16":
        config["bf16"] = {"enabled": True}
    if dtype == "fp16":
        # At stage 0 DeepSpeed divides gradients by a scale that it has not multiplied the loss by: 1 is right all the same.
        config["fp16"] = {"enabled": True, "initial_scale_power": 12 if stage > 0 else 0}
    return config


# In fp16 at stages 1 and 2 the gradients of the first steps overflow by this factor, far from what others come to.
SPIKE, SPIKED_STEPS = 1e6, 2


def parameter_groups(model):
    """Matrices, and the rest: without weight decay and with betas of their own."""
    trainable = [p for p in model.parameters() if p.requires_grad]
    return [
        {"params": [p for p in trainable if p.dim() > 1]},
        {"params": [p for p in trainable if p.dim() <= 1], "weight_decay": 0.0, "betas": [0.8, 0.9]},
    ]


def allow_fp16():
    """DeepSpeed refuses fp16 on a CPU without instructions for it, although torch computes it there."""
    from deepspeed.accelerator import get_accelerator

    get_accelerator().is_fp16_supported = lambda: True


def make_engine(config, variant, all_parameters=False):
    """`all_parameters`: DeepSpeed gets frozen ones too, as where a program names none."""
    import deepspeed

    allow_fp16()
    variant = VARIANTS[variant]
    model = SmallNet(variant["frozen"], variant["tied"])
    formula.fill_parameters(model, WEIGHT_SCALE)
    if variant["groups"]:
        parameters = parameter_groups(model)
    else:
        parameters = [p for p in model.parameters() if p.requires_grad or all_parameters]
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=parameters, config=config)
    return engine


def train(engine, num_steps, micro_batch=MICRO_BATCH):
    """This rank's losses of the next steps; each step has its own samples."""
    ranks = torch.distributed.get_world_size()
    losses = []
    for step in range(engine.global_steps, engine.global_steps + num_steps):
        loss = engine(*formula.batch(step, engine.global_rank, ranks, micro_batch, CONTEXT, VOCABULARY))
        spiked = engine.fp16_enabled() and engine.zero_optimization() and step < SPIKED_STEPS
        engine.backward(loss * SPIKE if spiked else loss)
        engine.step()
        losses.append(loss.item())
    return losses


def of_all_ranks(losses):
    """(ranks, steps)"""
    own = torch.tensor(losses, dtype=torch.float64)
    everyone = [torch.empty_like(own) for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather(everyone, own)
    return torch.stack(everyone)
