"""A forward and a backward of DeepSpeedTransformerLayer against layers of torch, of equal sizes and weights.

The peers are torch.nn.TransformerEncoderLayer, a layer written out in plain modules, and both under torch.compile. Each is first held
against the layer without dropout. Then they take turns, so that a change of the machine's pace meets all. Prints the ratios of the
medians, how many times as fast the layer is, each row as it comes.

    python3 transformer_layer.py [--device cuda] [--peers encoder written compiled_encoder compiled_written] [--small] [--seconds 60]

--small takes sizes that try the script itself. Rows that would begin after --seconds are left out.
"""

import argparse
import math
import statistics
import time

import torch
import torch.nn.functional as F

from deepspeed.ops.transformer import DeepSpeedTransformerConfig, DeepSpeedTransformerLayer

PEERS = ("encoder", "written", "compiled_encoder", "compiled_written")


class WrittenOut(torch.nn.Module):
    """The layer in plain modules: what a program writes that uses no ready one."""

    def __init__(self, peer, heads, ratio):
        super().__init__()
        self.peer, self.heads, self.ratio = peer, heads, ratio

    def attention(self, x):
        own = self.peer.self_attn
        batch, length, width = x.shape
        qkv = F.linear(x, own.in_proj_weight, own.in_proj_bias).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = (part.transpose(1, 2) for part in qkv.unbind(2))
        scores = q @ k.transpose(2, 3) / math.sqrt(width // self.heads)
        context = self.drop(scores.softmax(-1)) @ v
        return self.drop(own.out_proj(context.transpose(1, 2).reshape(batch, length, width)))

    def feed_forward(self, x):
        return self.drop(self.peer.linear2(F.gelu(self.peer.linear1(x), approximate="tanh")))

    def drop(self, x):
        return F.dropout(x, self.ratio, self.training)

    def forward(self, x):
        if self.peer.norm_first:
            x = x + self.attention(self.peer.norm1(x))
            return x + self.feed_forward(self.peer.norm2(x))
        x = self.peer.norm1(x + self.attention(x))
        return self.peer.norm2(x + self.feed_forward(x))


def gelu(states):
    return F.gelu(states, approximate="tanh")


def make(arguments, pre, ratio, dtype):
    """Returns the layer, and the peers by their names. All have the same weights."""
    torch.manual_seed(1)
    peer = torch.nn.TransformerEncoderLayer(
        arguments.hidden, arguments.heads, 4 * arguments.hidden, dropout=ratio, activation=gelu, batch_first=True, norm_first=pre
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
    ours, peer = (layer.to(arguments.device, dtype) for layer in (ours, peer))
    written = WrittenOut(peer, arguments.heads, ratio)
    peers = {"encoder": peer, "written": written}
    return ours, {name: made_peer(peers, name) for name in arguments.peers}


def made_peer(peers, name):
    if name.startswith("compiled_"):
        return torch.compile(peers[name.removeprefix("compiled_")], dynamic=False)
    return peers[name]


def verify(arguments, pre, dtype):
    """Holds the eager peers against the layer; what torch.compile makes of them is torch's own."""
    eager = argparse.Namespace(**dict(vars(arguments), peers=["encoder", "written"]))
    ours, peers = make(eager, pre, 0.0, dtype)
    x = torch.randn(2, 64, arguments.hidden, dtype=dtype, device=arguments.device)
    gradient = torch.randn_like(x)
    found = []
    for layer in (ours, *peers.values()):
        states = x.clone().requires_grad_()
        output = layer(states)
        output.backward(gradient)
        found.append((output, states.grad))
    tolerance = 1e-3 if dtype == torch.float32 else 5e-2
    for results in found[1:]:
        for seen, expected in zip(found[0], results):
            torch.testing.assert_close(seen, expected, atol=tolerance * expected.abs().max().item(), rtol=tolerance)


def seconds(layer, states, calls):
    synchronize(states)
    begin = time.perf_counter()
    for _ in range(calls):
        layer(states).sum().backward()
    synchronize(states)
    return (time.perf_counter() - begin) / calls


def synchronize(states):
    if states.is_cuda:
        torch.cuda.synchronize()


def most_bytes(layer, states):
    """Returns the most memory of the device that a step takes beyond what waits before it; 0 on the CPU."""
    if not states.is_cuda:
        return 0
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    layer(states).sum().backward()
    return torch.cuda.max_memory_allocated() - before


def measure(arguments, pre, ratio, dtype, sequence):
    """Returns, by name, the median seconds and the most bytes."""
    ours, peers = make(arguments, pre, ratio, dtype)
    layers = {"ours": ours, **peers}
    states = torch.randn(arguments.batch, sequence, arguments.hidden, dtype=dtype, device=arguments.device, requires_grad=True)
    times = {name: [] for name in layers}
    calls = 10 if states.is_cuda else 1
    for layer in layers.values():
        for _ in range(2):
            seconds(layer, states, 1)
    for _ in range(arguments.repeats):
        for name, layer in layers.items():
            times[name].append(seconds(layer, states, calls))
    return {name: (statistics.median(times[name]), most_bytes(layer, states)) for name, layer in layers.items()}


def row(name, sequence, ratio, found):
    ours, bytes_of_ours = found["ours"]
    cells = [f"{1e3 * ours:.2f} ms", *(f"{1e3 * time:.2f} ms ({time / ours:.2f})" for peer, (time, _) in found.items() if peer != "ours")]
    if bytes_of_ours:
        cells.append(" / ".join(f"{most / 2**20:.0f}" for _, most in found.values()))
    return f"| {name}, sequence {sequence}, dropout {ratio:.1f} | " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--peers", nargs="*", default=["encoder"], choices=PEERS)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--sequences", type=int, nargs="+", default=[128, 512])
    parser.add_argument("--ratios", type=float, nargs="+", default=[0.1, 0.0])
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--small", action="store_true")
    arguments = parser.parse_args()
    if arguments.small:
        arguments.hidden, arguments.heads, arguments.batch, arguments.sequences, arguments.repeats = 64, 4, 2, [32], 3
    end = time.monotonic() + arguments.seconds
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}, {arguments.device}")
    head = ["forward and backward", "this layer", *(f"{peer} (times as fast is this layer)" for peer in arguments.peers)]
    if arguments.device != "cpu":
        head.append("most MiB, in this order")
    for name in arguments.dtypes:
        for pre in (False, True):
            verify(arguments, pre, getattr(torch, name))
        print(f"{name}: outputs and gradients are those of torch", flush=True)
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}", flush=True)
    for name in arguments.dtypes:
        for sequence in arguments.sequences:
            for ratio in arguments.ratios:
                if time.monotonic() < end:
                    print(row(name, sequence, ratio, measure(arguments, False, ratio, getattr(torch, name), sequence)), flush=True)
                else:
                    print(f"left out for want of time: {name}, sequence {sequence}, dropout {ratio:.1f}", flush=True)


if __name__ == "__main__":
    main()
