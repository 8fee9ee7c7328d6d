"""Saving and loading beside DeepSpeed and torch.save, in one run on one disk.

    python save_and_load.py --bin build/release [--parameters 103000000] [--folder DIR]

Run it with a Python that has deepspeed and torch. All train the same model (ZeRO stage 1 in fp32, one rank: 16 bytes a
parameter in files). Before any time is printed DeepSpeed loads what we saved, and we load what it saved. A save counts
until its bytes are on the disk; the disk's own rate is the best of dd with O_DIRECT at two block sizes.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

WIDTH = 1024


def fsync_tree(folder):
    for path in [folder, *folder.rglob("*")]:
        handle = os.open(path, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)


def peer(options):
    """In a process of its own: DeepSpeed's engine, and torch.save of the same tensors."""
    os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT="29533")
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import torch

    import deepspeed

    deepspeed.comm.init_distributed("gloo", verbose=False)

    class TallNet(torch.nn.Module):
        def __init__(self, layers):
            super().__init__()
            for layer in range(layers):
                setattr(self, f"layer{layer}", torch.nn.Linear(WIDTH, 4 * WIDTH, bias=False))

        def forward(self, value):
            return self.layer0(value).square().mean()

    model = TallNet(max(1, options.parameters // (4 * WIDTH * WIDTH)))
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {"stage": 1},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
    }
    engine = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]
    result = {}
    if options.load:
        begin = time.monotonic()
        path, _ = engine.load_checkpoint(options.load)
        result["load"] = time.monotonic() - begin
        if path is None:
            raise SystemExit("DeepSpeed loaded nothing")
    else:
        folder = pathlib.Path(options.save)
        saves, durable, plain = [], [], []
        for round_number in range(options.rounds):
            engine.backward(engine(torch.ones(1, WIDTH)))
            engine.step()
            begin = time.monotonic()
            engine.save_checkpoint(options.save, tag=f"tag{round_number}")
            saves.append(time.monotonic() - begin)
            fsync_tree(folder)
            durable.append(time.monotonic() - begin)
        states = [engine.module.state_dict(), engine.optimizer.state_dict()]
        for round_number in range(options.rounds):
            begin = time.monotonic()
            with open(folder / f"plain{round_number}.pt", "wb") as file:
                torch.save(states, file)
                file.flush()
                os.fsync(file.fileno())
            plain.append(time.monotonic() - begin)
        result = {
            "save": statistics.median(saves),
            "durable": statistics.median(durable),
            "torch_save": statistics.median(plain),
            "torch_save_bytes": (folder / "plain0.pt").stat().st_size,
        }
    print(json.dumps(result))


def run(command):
    done = subprocess.run(list(map(str, command)), check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{command[0]} failed: {done.stderr.strip()[-800:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def disk_rate(folder, num_bytes):
    """GB/s of the best sequential write past the page cache, until it is durable."""
    rates = []
    target = folder / "dd.bin"
    for mebibytes in (1, 4, 1, 4):
        count = num_bytes // (mebibytes << 20)
        begin = time.monotonic()
        subprocess.check_call(
            ["dd", "if=/dev/zero", f"of={target}", f"bs={mebibytes}M", f"count={count}", "oflag=direct", "conv=fsync"],
            stderr=subprocess.DEVNULL,
        )
        rates.append(count * (mebibytes << 20) / (time.monotonic() - begin) / 1e9)
        target.unlink()
    return max(rates)


def drop_caches():
    os.sync()
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, help="the build folder")
    parser.add_argument("--parameters", type=int, default=103_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", help="where to work; needs 200 bytes a parameter")
    parser.add_argument("--save", help=argparse.SUPPRESS)
    parser.add_argument("--load", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.save or options.load:
        return peer(options)
    folder = pathlib.Path(tempfile.mkdtemp(dir=options.folder))
    ours, theirs = folder / "ours", folder / "theirs"
    program = options.bin / "benchmarks/checkpoint_save_and_load"
    size = ["--parameters", options.parameters]
    python = [sys.executable, __file__, "--rounds", options.rounds, *size]
    try:
        our_save = run([program, "save", ours, "--rounds", options.rounds, *size])
        their_save = run([*python, "--save", theirs])
        run([program, "load", theirs, *size])
        run([*python, "--load", ours])
        loads = {}
        for state in ("warm", "caches dropped"):
            rows = {"deepspeed-cpp": [program, "load", ours, *size], "DeepSpeed": [*python, "--load", theirs]}
            for name, command in rows.items():
                times = []
                for _ in range(3):
                    if state != "warm":
                        drop_caches()
                    times.append(run(command)["load"])
                loads[name, state] = statistics.median(times[-2:] if state == "warm" else times)
        num_bytes = sum(path.stat().st_size for path in (ours / "tag0").iterdir())
        disk = disk_rate(folder, num_bytes)
        ours_rate = num_bytes / our_save["save"] / 1e9
        plain_rate = their_save["torch_save_bytes"] / their_save["torch_save"] / 1e9
        print(f"{options.parameters / 1e6:.0f}M parameters, {num_bytes / 1e9:.2f} GB of files; each loaded what the other saved\n")
        print("| durable save | GB/s | ours / it |\n|---|---|---|")
        print(f"| deepspeed-cpp | {ours_rate:.2f} | 1.00 |")
        print(f"| torch.save + fsync | {plain_rate:.2f} | {ours_rate / plain_rate:.2f} |")
        durable = num_bytes / their_save["durable"] / 1e9
        print(f"| DeepSpeed + fsync | {durable:.2f} | {ours_rate / durable:.2f} |")
        print(f"| dd, O_DIRECT | {disk:.2f} | {ours_rate / disk:.2f} |")
        print(
            f"\nDecoupled, beside steps of 256 tokens: save_checkpoint() returns after {our_save['stall']:.3f} s, a step takes "
            f"{our_save['step']:.3f} s ({our_save['stall'] / our_save['step']:.2f} of it); durable after "
            f"{our_save['decoupled']:.2f} s"
        )
        print("\n| load | seconds | DeepSpeed's seconds | ratio |\n|---|---|---|---|")
        for state in ("warm", "caches dropped"):
            a, b = loads["deepspeed-cpp", state], loads["DeepSpeed", state]
            print(f"| {state} | {a:.2f} | {b:.2f} | {b / a:.2f} |")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
