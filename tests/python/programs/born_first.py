"""Enters zero.Init before anything else, with a config that leaves much to others; prints losses beside torch's own."""

import json

import torch

import deepspeed
from small_net import Net, make_engine, make_net, train, train_plain


def main():
    torch.manual_seed(0)
    config = {"zero_optimization": {"stage": 3, "reduce_bucket_size": "auto"}, "train_batch_size": "auto", "bf16": {"enabled": "auto"}}
    with deepspeed.zero.Init(config_dict_or_path=config):
        model = Net()
    is_partitioned = all(hasattr(param, "ds_id") for param in model.parameters())
    found, expected = train(make_engine(model=model)), train_plain(make_net())
    if deepspeed.comm.get_rank() == 0:
        print("RESULT " + json.dumps(dict(is_partitioned=is_partitioned, losses=found, expected=expected)), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
