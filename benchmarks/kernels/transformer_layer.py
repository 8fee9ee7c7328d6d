"""A forward and a backward of DeepSpeedTransformerLayer against torch.nn.TransformerEncoderLayer, of equal sizes and weights.

Both layers are first held against each other without dropout. Then they take turns, so that a change of the machine's pace meets both.
Prints the ratio of the medians: how many times as fast the layer is.
"""

import argparse
import statistics
import time

import torch

from deepspeed.ops.transformer import DeepSpeedTransformerConfig, DeepSpeedTransformerLayer


def make(arguments, pre, ratio, dtype):
    torch.manual_seed(1)
    peer = torch.nn.TransformerEncoderLayer(
        arguments.hidden,
        arguments.heads,
        4 * arguments.hidden,
        dropout=ratio,
        activation=lambda states: torch.nn.functional.gelu(states, approximate="tanh"),
        batch_first=True,
        norm_first=pre,
    )
    config = DeepSpeedTransformerConfig(
        hidden_size=arguments.hidden,
        heads=arguments.heads,
        attn_dropout_ratio=ratio,
        hidden_dropout_ratio=ratio,
        layer_norm_eps=peer.norm1.eps,
        pre_layer_norm=pre,
    )
    attention = peer.self_attn
    first, second = (peer.norm2, peer.norm1) if pre else (peer.norm1, peer.norm2)  # behind the attention, and the other one
    ours = DeepSpeedTransformerLayer(
        config,
        [
            *attention.in_proj_weight.chunk(3),
            attention.out_proj.weight,
            first.weight,
            peer.linear1.weight,
            peer.linear2.weight,
            second.weight,
        ],
        [*attention.in_proj_bias.chunk(3), attention.out_proj.bias, first.bias, peer.linear1.bias, peer.linear2.bias, second.bias],
    )
    return ours.to(dtype), peer.to(dtype)


def verify(arguments, pre, dtype):
    ours, peer = make(arguments, pre, 0.0, dtype)
    x = torch.randn(2, 64, arguments.hidden, dtype=dtype)
    gradient = torch.randn_like(x)
    found = []
    for layer in (ours, peer):
        states = x.clone().requires_grad_()
        output = layer(states)
        output.backward(gradient)
        found.append((output, states.grad))
    tolerance = 1e-4 if dtype == torch.float32 else 5e-2
    for seen, expected in zip(*found):
        torch.testing.assert_close(seen, expected, atol=tolerance * expected.abs().max().item(), rtol=tolerance)


def seconds(layer, states):
    begin = time.perf_counter()
    layer(states).sum().backward()
    return time.perf_counter() - begin


def measure(arguments, pre, ratio, dtype, sequence):
    layers = make(arguments, pre, ratio, dtype)
    states = torch.randn(arguments.batch, sequence, arguments.hidden, dtype=dtype, requires_grad=True)
    times = [[], []]
    for _ in range(arguments.repeats + 2):
        for layer, taken in zip(layers, times):
            taken.append(seconds(layer, states))
    ours, peer = (statistics.median(taken[2:]) for taken in times)
    return ours, peer


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--sequences", type=int, nargs="+", default=[128, 512])
    parser.add_argument("--ratios", type=float, nargs="+", default=[0.1, 0.0])
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    arguments = parser.parse_args()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}")
    for name in arguments.dtypes:
        dtype = getattr(torch, name)
        for pre in (False, True):
            verify(arguments, pre, dtype)
        print(f"{name}: outputs and gradients are those of torch")
        for sequence in arguments.sequences:
            for ratio in arguments.ratios:
                ours, peer = measure(arguments, False, ratio, dtype, sequence)
                print(
                    f"{name:8} sequence {sequence:4} dropout {ratio:.1f}: ours {1e3 * ours:8.1f} ms, torch {1e3 * peer:8.1f} ms, "
                    f"ratio {peer / ours:.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
