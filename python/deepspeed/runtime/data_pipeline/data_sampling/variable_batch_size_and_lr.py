"""Makes batches by number of tokens, and a learning rate that follows their size."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

from deepspeed._errors import UsageError
from deepspeed.runtime.data_pipeline.data_sampling import sample_lengths
from deepspeed.runtime.data_pipeline.data_sampling.token_batches import batch_by_seqlens
from deepspeed.runtime.data_pipeline.data_sampling.variable_batch_lr import (
    VariableBatchSizeLR,
    lr_scheduler_for_variable_batch_size,
    scale_lr as scale_lr,
)
from deepspeed.runtime.pipe.engine import PipelineEngine
from deepspeed.utils.logging import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from deepspeed.runtime.engine import DeepSpeedEngine

_SECTION = "data_efficiency.data_sampling.dynamic_batching"
_SAMPLES_AT_ONCE = 1024


def dataloader_for_variable_batch_size(
    dataset: Any,
    microbatch_ids: Any,
    batch_max_seqlens: Sequence[int],
    dataloader_rank: int = 0,
    dataloader_batch_size: int = 1,
    dataloader_num_replicas: int = 1,
    dataloader_collate_fn: Callable[[list[Any]], Any] | None = None,
    dataloader_num_workers: int = 2,
    dataloader_pin_memory: bool = False,
    required_microbatches_of_same_seqlen: bool = False,
    sample_padding_fn: Callable[[Any, int], Any] | None = None,
) -> tuple[DataLoader[Any], dict[str, Any]]:
    """Returns this rank's loader of micro batches, and matching arguments of engine.deepspeed_io()."""
    if required_microbatches_of_same_seqlen and sample_padding_fn is None:
        raise UsageError("sample_padding_fn is None: the micro batches of a pipeline's batch have one length, so that a function must pad")
    sampler: DistributedSampler[Any] = DistributedSampler(
        microbatch_ids, num_replicas=dataloader_num_replicas, rank=dataloader_rank, shuffle=False
    )

    pad: Any = sample_padding_fn  # it is only called if given

    def collate(micro_batches: Iterable[tuple[int, Sequence[int]]]) -> Any:
        samples = []
        for batch, indices in micro_batches:
            taken = [dataset[index] for index in indices]
            if required_microbatches_of_same_seqlen:
                taken = [pad(sample, batch_max_seqlens[batch]) for sample in taken]
            samples += taken
        return dataloader_collate_fn(samples) if dataloader_collate_fn else samples

    shared: dict[str, Any] = dict(
        dataset=microbatch_ids, batch_size=dataloader_batch_size, pin_memory=dataloader_pin_memory, collate_fn=collate
    )
    loader: DataLoader[Any] = DataLoader(sampler=sampler, num_workers=dataloader_num_workers, **shared)
    return loader, dict(data_sampler=sampler, num_local_io_workers=dataloader_num_workers, **shared)


def get_dataloader_and_lr_scheduler_for_variable_batch_size(
    dataset: Any,
    dataset_seqlens: Sequence[int] | np.ndarray[Any, Any],
    max_tokens: int,
    effective_batch_size: int,
    dataset_filter_ids: Iterable[int] | None = None,
    lr_scaling_method: str = "linear",
    min_batch_size: int = 1,
    max_batch_size: int | None = None,
    sequence_picking_order: str = "dataloader",
    dataloader_batch_size: int = 1,
    dataloader_rank: int = 0,
    dataloader_num_replicas: int = 1,
    dataloader_num_workers: int = 0,
    dataloader_collate_fn: Callable[[list[Any]], Any] | None = None,
    dataloader_pin_memory: bool = False,
    lr_scheduler_or_optimizer: Any = None,
    required_microbatches_of_same_size: bool = False,
    required_microbatches_of_same_seqlen: bool = False,
    sample_padding_fn: Callable[[Any, int], Any] | None = None,
    verbose: bool = False,
    seed: int | None = None,
) -> tuple[DataLoader[Any], VariableBatchSizeLR, dict[str, Any]]:
    """Returns the loader, the schedule and the arguments of deepspeed_io(). batch_by_seqlens() describes how samples are packed."""
    micro_batches, sizes, longest = batch_by_seqlens(
        seqlens=dataset_seqlens,
        max_tokens=max_tokens,
        sequence_ids_per_mb=dataset_filter_ids,
        min_batch_size=min_batch_size,
        max_batch_size=max_batch_size,
        sequence_picking_order=sequence_picking_order,
        effective_batch_size=effective_batch_size,
        required_microbatches_of_same_size=required_microbatches_of_same_size,
        verbose=verbose,
        seed=seed,
    )
    loader, arguments = dataloader_for_variable_batch_size(
        dataset,
        micro_batches,
        longest,
        dataloader_rank=dataloader_rank,
        dataloader_batch_size=dataloader_batch_size,
        dataloader_num_replicas=dataloader_num_replicas,
        dataloader_collate_fn=dataloader_collate_fn,
        dataloader_num_workers=dataloader_num_workers,
        dataloader_pin_memory=dataloader_pin_memory,
        required_microbatches_of_same_seqlen=required_microbatches_of_same_seqlen,
        sample_padding_fn=sample_padding_fn,
    )
    schedule = lr_scheduler_for_variable_batch_size(
        effective_batch_size, sizes, loader, lr_scheduler_or_optimizer, lr_scaling_method, verbose
    )
    return loader, schedule, arguments


def get_dataloader_and_lr_scheduler_for_variable_batch_size_deepspeed(
    dataset: Any,
    engine: DeepSpeedEngine,
    dataset_seqlens: Sequence[int] | np.ndarray[Any, Any] | None = None,
    dataset_filter_ids: Iterable[int] | None = None,
    dataloader_collate_fn: Callable[[list[Any]], Any] | None = None,
    sample_padding_fn: Callable[[Any, int], Any] | None = None,
    batch_seqlens_fn: Callable[[Any], Any] | None = None,
) -> tuple[DataLoader[Any], VariableBatchSizeLR, dict[str, Any]]:
    """Returns loader, schedule and arguments of deepspeed_io() for an engine with dynamic_batching.

    Its config must enable that section. Without dataset_seqlens the lengths are read from the section's metrics_path. If there are none,
    batch_seqlens_fn(collated batch) returns the lengths of its samples, which are stored there. Collective.
    """
    data = engine._key(dict, "data_efficiency")
    sampling, batching = data["data_sampling"], data["data_sampling"]["dynamic_batching"]
    if not is_enabled(engine.config):
        raise UsageError(f"{_SECTION}.enabled is false, expected true for batches of so many tokens")
    if batching["max_tokens"] is None:
        raise UsageError(f"{_SECTION}.max_tokens is missing: the most tokens of a micro batch")
    if dataset_seqlens is None:
        dataset_seqlens = _lengths_of(dataset, batching["metrics_path"], batch_seqlens_fn, dataloader_collate_fn)
    is_pipeline = isinstance(engine, PipelineEngine)
    return get_dataloader_and_lr_scheduler_for_variable_batch_size(
        dataset,
        dataset_seqlens,
        max_tokens=batching["max_tokens"],
        effective_batch_size=engine.train_batch_size(),
        dataset_filter_ids=dataset_filter_ids,
        lr_scaling_method=batching["lr_scaling_method"],
        min_batch_size=batching["min_batch_size"],
        max_batch_size=batching["max_batch_size"],
        sequence_picking_order=batching["sequence_picking_order"],
        dataloader_batch_size=engine.train_micro_batch_size_per_gpu(),
        dataloader_rank=dist.get_rank(engine.data_parallel_group),
        dataloader_num_replicas=dist.get_world_size(engine.data_parallel_group),
        dataloader_num_workers=sampling["num_workers"],
        dataloader_collate_fn=dataloader_collate_fn,
        dataloader_pin_memory=sampling["pin_memory"],
        lr_scheduler_or_optimizer=engine.lr_scheduler or engine.optimizer,
        required_microbatches_of_same_size=is_pipeline,
        required_microbatches_of_same_seqlen=is_pipeline,
        sample_padding_fn=sample_padding_fn,
        verbose=batching["verbose"],
        seed=data["seed"],
    )


def is_enabled(config: Mapping[str, Any]) -> bool:
    """Returns whether a script's config requests batches by number of tokens."""
    for key in _SECTION.split("."):
        config = config.get(key) or {}
    return bool(config.get("enabled"))


def _lengths_of(
    dataset: Any, folder: str | None, batch_seqlens_fn: Callable[[Any], Any] | None, collate_fn: Callable[[list[Any]], Any] | None
) -> Any:
    """Returns the lengths on all ranks. The first rank reads or measures them; its errors are raised on all."""
    found: list[Any] = [None, None]
    if dist.get_rank() == 0:
        try:
            found[0] = _read_or_measure(dataset, folder, batch_seqlens_fn, collate_fn)
        except Exception as error:
            found[1] = error
    dist.broadcast_object_list(found, src=0)
    if found[1] is not None:
        raise found[1]
    return found[0]


def _read_or_measure(
    dataset: Any, folder: str | None, batch_seqlens_fn: Callable[[Any], Any] | None, collate_fn: Callable[[list[Any]], Any] | None
) -> Any:
    prefix = None if folder is None else os.path.join(folder, "seqlen", "seqlen_sample_to_metric")
    if prefix is None or not sample_lengths.are_there(prefix):
        if batch_seqlens_fn is None:
            raise UsageError(f"there are no lengths in {_SECTION}.metrics_path: {folder}; pass dataset_seqlens or batch_seqlens_fn")
        lengths = _measure(dataset, batch_seqlens_fn, collate_fn)
        if prefix is not None:
            logger.info(f"writes the lengths of {len(lengths)} samples to {prefix}.bin")
            sample_lengths.write_lengths(prefix, lengths)
        return lengths
    lengths = sample_lengths.read_lengths(prefix)
    if len(lengths) != len(dataset):
        raise UsageError(
            f"{prefix}.idx has the lengths of {len(lengths)} samples, and the data set has {len(dataset)}: delete the folder {folder}"
        )
    return lengths


def _measure(dataset: Any, batch_seqlens_fn: Callable[[Any], Any], collate_fn: Callable[[list[Any]], Any] | None) -> np.ndarray[Any, Any]:
    lengths = []
    for batch in DataLoader(dataset, batch_size=_SAMPLES_AT_ONCE, collate_fn=collate_fn):
        lengths += torch.as_tensor(batch_seqlens_fn(batch)).flatten().tolist()
    return np.array(lengths, dtype=np.int64)
