"""Two ranks that share experts out, and two that hold all of them."""

import json

import torch

import deepspeed
import deepspeed.comm as dist
from deepspeed.runtime.utils import clip_grad_norm_
from deepspeed.utils import groups

deepspeed.init_distributed(dist_backend="gloo")
for size in (1, 2):
    groups._create_expert_and_data_parallel(size)
rank = dist.get_rank()

# The square of the norm is 1 of what all ranks have, and 0 or 1 of each one's expert; clipping takes the mean norm.
dense, expert = (torch.nn.Parameter(torch.zeros(1)) for _ in range(2))
dense.grad, expert.grad = torch.ones(1), torch.full((1,), 0.5**0.5)
expert.allreduce = False
norm = clip_grad_norm_([dense, expert], max_norm=10.0).item()


def train(group):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
    for param in model[1].parameters():
        param.allreduce, param.group_name = False, group
    config = {"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "SGD", "params": {"lr": 0.1}}}
    engine = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]
    engine.backward(engine(torch.full((2, 4), float(rank + 1))).sum())
    engine.step()
    return engine.global_steps == 1


try:
    refusal = str(train("ep_size_2"))
except deepspeed.NotSupportedError as error:
    refusal = str(error)
result = {
    "sizes": [groups._get_expert_parallel_world_size("ep_size_2"), groups._get_expert_data_parallel_world_size("ep_size_2")],
    "ranks": [
        list(groups._get_expert_parallel_group_ranks("ep_size_2")),
        list(groups._get_expert_data_parallel_group_ranks("ep_size_2")),
    ],
    "norm": norm,
    "refusal": refusal,
    "trained_with_whole_experts": train("ep_size_1"),
}
if rank == 0:
    print("RESULT " + json.dumps(result))
dist.destroy_process_group()
