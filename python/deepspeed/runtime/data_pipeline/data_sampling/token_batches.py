"""Packs samples of different lengths into micro batches with a limit of tokens."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from deepspeed._errors import UsageError
from deepspeed.utils.logging import logger

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    import numpy as np

ORDERS = ("dataloader", "random", "seqlen")


def batch_by_seqlens(
    seqlens: Sequence[int] | np.ndarray[Any, Any],
    max_tokens: int,
    sequence_ids_per_mb: Iterable[int] | None = None,
    min_batch_size: int = 1,
    max_batch_size: int | None = None,
    sequence_picking_order: str = "dataloader",
    effective_batch_size: int = 1,
    required_microbatches_of_same_size: bool = False,
    verbose: bool = False,
    seed: int | None = None,
) -> tuple[list[tuple[int, list[int]]], list[int], list[int]]:
    """Packs samples into as many micro batches as make whole batches.

    sequence_ids_per_mb: the samples to use; by default all. A micro batch has at most max_tokens tokens, and from min_batch_size to
    max_batch_size samples. effective_batch_size micro batches make a batch; with required_microbatches_of_same_size they have equally
    many samples. As in DeepSpeed the very last sample is in none. Returns [(batch, [sample])] of the micro batches, and for each batch
    the number of its samples and its longest length.
    """
    if sequence_picking_order not in ORDERS:
        raise UsageError(f"sequence_picking_order: got {sequence_picking_order!r}, expected one of {', '.join(ORDERS)}")
    samples = _in_order(seqlens, sequence_ids_per_mb, max_tokens, sequence_picking_order, seed)
    width = effective_batch_size if required_microbatches_of_same_size else 1
    packed = _pack(samples, width, max_tokens, min_batch_size or 0, max_batch_size)
    if len(packed) < effective_batch_size:
        raise UsageError(
            f"{len(samples)} samples make {len(packed)} micro batches of at most {max_tokens} tokens, expected {effective_batch_size} at "
            "least, those of one step: give more samples, or another max_tokens, min_batch_size or max_batch_size"
        )
    micro_batches: list[tuple[int, list[int]]] = []
    sizes: list[int] = []
    longest: list[int] = []
    for begin in range(0, len(packed) - len(packed) % effective_batch_size, effective_batch_size):
        batch = packed[begin : begin + effective_batch_size]
        micro_batches += [(len(sizes), [sample for _, sample in micro_batch]) for micro_batch in batch]
        sizes.append(sum(map(len, batch)))
        longest.append(max(length for micro_batch in batch for length, _ in micro_batch))
        if verbose:
            tokens = [sum(length for length, _ in micro_batch) for micro_batch in batch]
            logger.info(f"batch {len(sizes) - 1}: {sizes[-1]} samples in {len(batch)} micro batches of {tokens} tokens")
    return micro_batches, sizes, longest


def _in_order(
    seqlens: Sequence[int] | np.ndarray[Any, Any], wanted: Iterable[int] | None, max_tokens: int, order: str, seed: int | None
) -> list[tuple[int, int]]:
    """Returns [(length, sample)] without samples that are too long for any micro batch."""
    samples = [(int(seqlens[index]), int(index)) for index in (range(len(seqlens)) if wanted is None else wanted)]
    if order == "random":
        random.Random(seed).shuffle(samples)
    elif order == "seqlen":
        samples.sort()
    short = [sample for sample in samples if sample[0] <= max_tokens]
    if len(short) < len(samples):
        logger.warning(f"{len(samples) - len(short)} samples are left out, since they have more than {max_tokens} tokens")
    return short


def _pack(samples: list[tuple[int, int]], width: int, max_tokens: int, least: int, most: int | None) -> list[list[tuple[int, int]]]:
    """Deals samples to `width` micro batches in turn, while all of them may grow."""
    packed: list[list[tuple[int, int]]] = []
    begin = 0
    while True:
        fitting, tokens, size = 0, [0] * width, 0
        while begin + (size + 1) * width < len(samples) and (not most or size < most):
            row = samples[begin + size * width : begin + (size + 1) * width]
            tokens = [held + length for held, (length, _) in zip(tokens, row)]
            if max(tokens) > max_tokens:
                break
            size += 1
            if size >= least:
                fitting = size
        if fitting == 0:
            return packed
        end = begin + fitting * width
        packed += [samples[begin + place : end : width] for place in range(width)]
        begin = end
