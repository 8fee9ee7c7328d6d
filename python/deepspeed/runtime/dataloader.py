"""Provides loaders of micro batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any


class RepeatingLoader:
    """Restarts a loader when it ends, so that its iterator has no end."""

    def __init__(self, loader: Iterable[Any]) -> None:
        self.loader = loader
        self.data_iter = iter(self.loader)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            return next(self.data_iter)
        except StopIteration:
            self.data_iter = iter(self.loader)
            return next(self.data_iter)


class DeepSpeedDataLoader:
    """Returns this rank's micro batches. Each epoch has an order of its own."""

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        pin_memory: bool,
        local_rank: int,
        tput_timer: object,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        num_local_io_workers: int | None = None,
        data_sampler: Any = None,
        data_parallel_world_size: int | None = None,
        data_parallel_rank: int | None = None,
        dataloader_drop_last: bool = False,
        deepspeed_dataloader_config: Mapping[str, Any] = {},
        shuffle: bool = True,
        seed: int = 0,
    ) -> None:
        self.batch_size = batch_size
        self.dataset = dataset
        self.collate_fn = collate_fn
        self.epoch = 0
        self.data: Iterator[Any] | None = None
        if data_sampler is None and not isinstance(dataset, torch.utils.data.IterableDataset):
            if local_rank >= 0:
                data_sampler = DistributedSampler(
                    dataset, num_replicas=data_parallel_world_size, rank=data_parallel_rank, shuffle=shuffle, seed=seed % 2**32
                )
            else:
                data_sampler = RandomSampler(dataset) if shuffle else SequentialSampler(dataset)
        self.data_sampler = data_sampler
        self.dataloader = DataLoader(
            dataset,
            batch_size=batch_size,
            sampler=data_sampler,
            collate_fn=collate_fn,
            num_workers=num_local_io_workers or 0,
            pin_memory=pin_memory,
            drop_last=dataloader_drop_last,
        )
        self.len = len(self.dataloader) if hasattr(dataset, "__len__") else None

    def __iter__(self) -> Iterator[Any]:
        if hasattr(self.data_sampler, "set_epoch"):
            self.data_sampler.set_epoch(self.epoch)
        self.epoch += 1
        self.data = iter(self.dataloader)
        return self.data

    def __len__(self) -> int:
        return len(self.dataloader)

    def __next__(self) -> Any:
        return next(iter(self) if self.data is None else self.data)
