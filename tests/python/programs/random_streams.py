"""Seeds all ranks alike, makes an engine and draws random numbers; prints what each rank drew, without an engine first."""

import json

import torch

import deepspeed


def draw(config=None):
    torch.manual_seed(5)
    model = torch.nn.Linear(2, 2)
    if config is not None:
        config = {"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "Adam"}, **config}
        engine = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]
        engine.destroy()
    drawn = [None] * deepspeed.comm.get_world_size()
    deepspeed.comm.all_gather_object(drawn, torch.rand(3).tolist())
    return drawn


if __name__ == "__main__":
    torch.set_num_threads(1)
    deepspeed.init_distributed(dist_backend="gloo")
    stages = [{"zero_optimization": {"stage": stage}} for stage in range(4)]
    result = {"bare": draw(), "stages": [draw(stage) for stage in stages], "seed": draw({"seed": 7})}
    if deepspeed.comm.get_rank() == 0:
        print("RESULT " + json.dumps(result), flush=True)
