"""Rank 1 leaves a training as its argument says, or stops in it; rank 0 prints the error that it gets.

loses_a_rank.py '{"how": "raise", "stage": 3}'
"""

import json
import os
import signal
import sys

import torch

import deepspeed
from small_net import make_engine, make_net, step_of


class Lost(Exception):
    """Is rank 1's own."""


def main():
    options = json.loads(sys.argv[1])
    deepspeed.init_distributed(dist_backend="gloo")
    model = make_net()
    engine = make_engine(options["stage"], model)
    step_of(engine)
    if deepspeed.comm.get_rank() == 1:
        if options["how"] == "exit":
            os._exit(3)
        if options["how"] == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        else:
            model.inner.register_forward_hook(leave)
            step_of(engine)
    try:
        for _ in range(3):
            step_of(engine)
        print("RESULT " + json.dumps({"error": None}), flush=True)
    except deepspeed.CommError as error:
        print("RESULT " + json.dumps({"error": str(error)}), flush=True)


def leave(*_):
    raise Lost("no more")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
