"""Goes on from a checkpoint that DeepSpeed has written, in the training that wrote it; prints the losses of all ranks.

resume_deepspeed.py '{"folder": "stage1_fp32", "variant": "golden", "config": {...}, "client": true, "direct": true}'
"""

import json
import pathlib
import sys

import torch

import deepspeed

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "golden"
sys.path[1:1] = [str(GOLDEN / "deepspeed_checkpoints"), str(GOLDEN / "deepspeed_training")]

import formula  # noqa: E402
import small_training as small  # noqa: E402


def make_engine(options):
    """Makes the engine with torch's AdamW as the script's own, or with the optimizer of the config."""
    config = options["config"]
    if not options["client"]:
        return small.make_engine(config, options["variant"], all_parameters=True)
    given = config.pop("optimizer")["params"]
    variant = small.VARIANTS[options["variant"]]
    model = small.SmallNet(variant["frozen"], variant["tied"])
    formula.fill_parameters(model, small.WEIGHT_SCALE)
    optimizer = torch.optim.AdamW(model.parameters(), **given)
    return deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]


def main():
    options = json.loads(sys.argv[1])
    deepspeed.init_distributed(dist_backend="gloo")
    engine = make_engine(options)
    path, state = engine.load_checkpoint(str(GOLDEN / "deepspeed_checkpoints" / options["folder"]))
    ranks, losses, rates = deepspeed.comm.get_world_size(), [], []
    for step in range(engine.global_steps, engine.global_steps + 3):
        loss = engine(*formula.batch(step, engine.global_rank, ranks, small.MICRO_BATCH, small.CONTEXT, small.VOCABULARY))
        if options["direct"]:
            loss.backward()
        else:
            engine.backward(loss)
        engine.step()
        losses.append(loss.item())
        rates.append(engine.get_lr()[0])
    losses = small.of_all_ranks(losses).T.tolist()
    if engine.global_rank == 0:
        result = dict(losses=losses, rates=rates, state=state, path=path, iteration=engine.lr_scheduler.last_batch_iteration)
        print("RESULT " + json.dumps(result), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
