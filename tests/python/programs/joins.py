"""Joins a job in the way that its argument names, and says what came of it."""

import datetime
import json
import os
import sys
import time

import torch

import deepspeed

RANK = int(os.environ.get("RANK", 0))


def sum_of_ranks():
    total = torch.tensor([float(torch.distributed.get_rank())])
    torch.distributed.all_reduce(total)
    return total.item()


def train():
    model = torch.nn.Linear(4, 4)
    config = {"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "Adam"}, "zero_optimization": {"stage": 1}}
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    engine.backward(engine(torch.ones(1, 4)).sum())
    engine.step()
    return sum_of_ranks()


def twice():
    deepspeed.init_distributed("gloo")
    deepspeed.init_distributed("gloo")
    return train()


def again():
    """Leaves and joins at the same port; rank 0, which holds the store, leaves last."""
    results = []
    for _ in range(3):
        deepspeed.init_distributed("gloo")
        results.append(train())
        if RANK == 0:
            time.sleep(0.1)
        torch.distributed.destroy_process_group()
    assert len(set(results)) == 1
    return results[0]


def tcp():
    method = f"tcp://127.0.0.1:{os.environ['MASTER_PORT']}"
    size = int(os.environ["WORLD_SIZE"])
    for name in ("MASTER_ADDR", "MASTER_PORT", "LOCAL_WORLD_SIZE"):
        del os.environ[name]
    deepspeed.init_distributed("gloo", init_method=method, rank=RANK, world_size=size)
    return train()


def env():
    deepspeed.init_distributed("gloo", init_method="env://")
    return train()


def file():
    deepspeed.init_distributed("gloo", init_method=f"file://{sys.argv[2]}", rank=RANK, world_size=int(os.environ["WORLD_SIZE"]))
    return train()


def script():
    """The script makes the group itself, so that torch's store listens."""
    torch.distributed.init_process_group("gloo")
    return train()


def spawned():
    torch.multiprocessing.spawn(spawned_rank, args=(os.environ["MASTER_PORT"],), nprocs=2)
    return 1.0


def spawned_rank(rank, port):
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), MASTER_ADDR="localhost", MASTER_PORT=port)
    os.environ.pop("LOCAL_WORLD_SIZE", None)
    deepspeed.init_distributed("gloo")
    assert train() == 1.0


def restarted():
    """The first attempt fails on one rank once both have met."""
    deepspeed.init_distributed("gloo")
    result = train()
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and RANK == 1:
        os._exit(3)
    torch.distributed.barrier()
    return train() + result - 1.0


def store():
    """The methods of the store that torch.distributed's own code calls from Python."""
    deepspeed.init_distributed("gloo")
    kept = torch.distributed.distributed_c10d._get_default_store()
    key, a, b, missing = (f"{name} of rank {RANK}" for name in ("key", "a", "b", "missing"))  # the ranks share the store
    kept.set(key, "value")
    assert kept.get(key) == b"value" and kept.check([key]) and kept.clone().get(key) == b"value"
    kept.wait([key])
    kept.add("count", 1)
    kept.multi_set([a, b], ["1", "2"])
    assert kept.multi_get([a, b]) == [b"1", b"2"] and kept.has_extended_api() and kept.num_keys() > 3
    assert kept.compare_set(a, "1", "3") == b"3" and kept.delete_key(a) is True
    kept.append(b, "2")
    torch.distributed.monitored_barrier()
    kept.queue_push("queue", "item")
    assert kept.queue_len("queue") >= 1 and kept.queue_pop("queue") == b"item"
    kept.set_timeout(datetime.timedelta(milliseconds=10))
    try:
        kept.get(missing)
        raise AssertionError("a key that nobody sets came")
    except torch.distributed.DistStoreError as error:
        assert "wait timeout after 10ms" in str(error), error
    kept.set_timeout(datetime.timedelta(seconds=60))
    return train()


if __name__ == "__main__":
    torch.set_num_threads(1)
    outcome = globals()[sys.argv[1]]()
    if int(os.environ.get("RANK", 0)) == 0:
        print("RESULT " + json.dumps(outcome), flush=True)
