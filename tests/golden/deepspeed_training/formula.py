"""Initial weights and token sequences as pure functions of integers, so that another language makes the same bits.

The functions are defined in README.md; tests/support/formula_training.cpp is their C++ twin.
"""

import numpy as np
import torch

WEIGHT_STREAM = 1
TOKEN_STREAM = 2


def splitmix64(x):
    """x: uint64 array. The SplitMix64 output function at state x."""
    with np.errstate(over="ignore"):
        z = np.asarray(x, dtype=np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def hash3(stream, k, i):
    """hash(stream, k, i) with i an array of integers."""
    with np.errstate(over="ignore"):
        inner = splitmix64(splitmix64(np.uint64(stream)) + np.uint64(k))
        return splitmix64(inner + np.asarray(i, dtype=np.uint64))


def uniform(h):
    """uint64 -> double in [-1, 1): the 53 high bits."""
    return (h >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0


def parameter_values(k, numel, scale, offset):
    """offset + scale * u in double, rounded once to float32."""
    return (offset + scale * uniform(hash3(WEIGHT_STREAM, k, np.arange(numel)))).astype(np.float32)


def fill_parameters(model, scale):
    """Weights of layer norms lie around 1, all other parameters around 0. k counts named_parameters()."""
    with torch.no_grad():
        for k, (name, parameter) in enumerate(model.named_parameters()):
            offset = 1.0 if ".ln_" in "." + name and name.endswith(".weight") else 0.0
            values = parameter_values(k, parameter.numel(), scale, offset)
            parameter.copy_(torch.from_numpy(values).view(parameter.shape))


def sequences(first_sample, num_samples, length, vocabulary):
    """(num_samples, length) int64: a fixed rule that one token in eight breaks."""
    rows = []
    for sample in range(first_sample, first_sample + num_samples):
        hashes = hash3(TOKEN_STREAM, sample, np.arange(length)).tolist()
        row = [hashes[0] % vocabulary]
        for h in hashes[1:]:
            row.append(h % vocabulary if h >> 61 == 0 else (5 * row[-1] + 7) % vocabulary)
        rows.append(row)
    return torch.tensor(rows, dtype=torch.int64)


def batch(micro_step, rank, world_size, micro_batch, context, vocabulary):
    """(tokens, targets), each (micro_batch, context), of one rank in one micro step."""
    first = (micro_step * world_size + rank) * micro_batch
    rows = sequences(first, micro_batch, context + 1, vocabulary)
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()
