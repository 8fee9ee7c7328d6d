"""The peer of end_to_end_gpt2_throughput under DeepSpeed: the GPT-2, tokens and update of torch_peer.py on one rank.

    python3 deepspeed_peer.py --layers 48 --heads 25 --width 1600 --micro_batch 16 --zero '{"stage": 3}'

Prints one line of JSON.
"""

import json
import os
import resource
import statistics
import time

import torch
import torch_peer


def read_options():
    parser = torch_peer.make_parser(__doc__)
    parser.add_argument("--zero", type=json.loads, default={"stage": 0}, help="the section zero_optimization")
    parser.add_argument("--bf16", type=json.loads, default={"enabled": True}, help="the section bf16")
    return parser.parse_args()


def resident_bytes():
    with open("/proc/self/statm") as numbers:
        return int(numbers.read().split()[1]) * resource.getpagesize()


def counts_pinned_memory():
    """Whether what CUDA page-locks counts as resident memory of the process. It does where the process mapped it, as the
    engine does, and may not where CUDA did, as for torch."""
    torch.empty(1 << 12, dtype=torch.uint8, pin_memory=True)  # what the first use of CUDA takes
    before = resident_bytes()
    block = torch.empty(1 << 28, dtype=torch.uint8, pin_memory=True).fill_(1)
    counted = resident_bytes() - before > block.numel() // 2
    del block
    torch._C._host_emptyCache()
    return counted


def make_engine(options):
    import deepspeed

    config = {
        "train_micro_batch_size_per_gpu": options.micro_batch,
        "bf16": options.bf16,
        "gradient_clipping": options.clipping,
        "zero_optimization": options.zero,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": 0.1}},
    }
    for name, value in [("RANK", "0"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29511")]:
        os.environ.setdefault(name, value)
    deepspeed.init_distributed()
    torch.manual_seed(1)
    with deepspeed.zero.Init(config_dict_or_path=config, enabled=options.zero["stage"] == 3 and not options.weights):
        model = torch_peer.GPT(options)
    parameters = sum(getattr(parameter, "ds_numel", parameter.numel()) for parameter in model.parameters())
    if options.weights:
        model.load_state_dict(torch.load(options.weights, weights_only=True))
    return deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0], parameters


def main():
    options = read_options()
    pinned_is_apart = torch.cuda.is_available() and not counts_pinned_memory()
    engine, parameters = make_engine(options)
    losses, step_ms = [], []
    for step in range(options.warmup + options.steps):
        text = torch_peer.make_text(step, options).to(engine.device)
        tokens, targets = text[:, :-1].contiguous(), text[:, 1:].contiguous()
        start = time.perf_counter()
        loss = engine(tokens, targets)
        engine.backward(loss)
        engine.step()
        losses.append(loss.detach())
        if engine.device.type == "cuda":
            torch.cuda.synchronize()
        step_ms.append(1e3 * (time.perf_counter() - start))
    on_cuda = engine.device.type == "cuda"
    median = statistics.median(step_ms[options.warmup :])
    pinned = torch.cuda.host_memory_stats().get("allocated_bytes.peak", 0) if pinned_is_apart else 0
    print(
        json.dumps(
            {
                "parameters": parameters,
                "device": engine.device.type,
                "step_ms": median,
                "tokens_per_s": 1e3 * options.micro_batch * options.context / median,
                "peak_bytes": torch.cuda.max_memory_allocated() if on_cuda else 0,
                "host_peak_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + pinned,
                "losses": [loss.item() for loss in losses],
            }
        )
    )


if __name__ == "__main__":
    main()
