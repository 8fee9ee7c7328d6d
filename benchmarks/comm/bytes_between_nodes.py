"""Counts what a rank receives from the other node in a step of the demo's GPT in bf16: ZeRO-3 beside ZeRO++ (markdown).

    python bytes_between_nodes.py --program build/release/benchmarks/end_to_end_zero_step

Four ranks stand for two nodes of two. The demo's matrices lie below stage3_param_persistence_threshold's default, so that plain ZeRO-3
gathers them once a step; with a threshold of 0 it gathers them in forward and in backward.
"""

import argparse
import json
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "tests" / "golden" / "deepspeed_training"))

from launch_ranks import launch_command  # noqa: E402

GPT = "--width 128 --layers 4 --heads 4 --vocabulary 96 --context 64".split()
ZEROPP = {"zero_quantized_weights": True, "zero_hpz_partition_size": 2, "zero_quantized_gradients": True}
ROWS = {"ZeRO-3": {}, "ZeRO-3, gathers by nodes": {"mics_hierarchical_params_gather": True}, "ZeRO++": ZEROPP}


def bytes_and_loss(program, zero):
    config = {"bf16": {"enabled": True}, "zero_optimization": zero}
    words = [program, "--stage", 3, "--count", "--steps", 4, "--warmup", 2, *GPT, "--config", json.dumps(config)]
    lines = launch_command([str(word) for word in words], 4).splitlines()
    result = json.loads([line for line in lines if line.startswith("{")][-1])
    return result["received_bytes_a_step"]["between_nodes"], result["losses"][-1][0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, required=True)
    program = parser.parse_args().program.resolve()
    os.environ["DEEPSPEED_RANKS_PER_NODE"] = "2"
    print("| persistence threshold | run | KB from the other node | of ZeRO-3 | last loss |\n|---|---|---|---|---|")
    for threshold in (100_000, 0):
        plain = None
        for name, keys in ROWS.items():
            found, loss = bytes_and_loss(program, {**keys, "stage3_param_persistence_threshold": threshold})
            plain = plain or found
            print(f"| {threshold:,} | {name} | {found / 1000:.0f} | {found / plain:.3f} | {loss:.4f} |", flush=True)


if __name__ == "__main__":
    main()
