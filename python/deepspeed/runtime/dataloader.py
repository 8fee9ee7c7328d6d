"""Loaders of micro batches."""

import torch
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler
from torch.utils.data.distributed import DistributedSampler


class RepeatingLoader:
    """Begins a loader anew when it ends, so that an iterator of it has no end."""

    def __init__(self, loader):
        self.loader = loader
        self.data_iter = iter(self.loader)

    def __iter__(self):
        return self

    def __next__(self):
        try:
            return next(self.data_iter)
        except StopIteration:
            self.data_iter = iter(self.loader)
            return next(self.data_iter)


class DeepSpeedDataLoader:
    """Gives this rank's micro batches; each epoch has an order of its own."""

    def __init__(
        self,
        dataset,
        batch_size,
        pin_memory,
        local_rank,
        tput_timer,
        collate_fn=None,
        num_local_io_workers=None,
        data_sampler=None,
        data_parallel_world_size=None,
        data_parallel_rank=None,
        dataloader_drop_last=False,
        deepspeed_dataloader_config={},
        shuffle=True,
        seed=0,
    ):
        self.batch_size = batch_size
        self.dataset = dataset
        self.collate_fn = collate_fn
        self.epoch = 0
        self.data = None
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

    def __iter__(self):
        if hasattr(self.data_sampler, "set_epoch"):
            self.data_sampler.set_epoch(self.epoch)
        self.epoch += 1
        self.data = iter(self.dataloader)
        return self.data

    def __len__(self):
        return len(self.dataloader)

    def __next__(self):
        if self.data is None:
            iter(self)
        return next(self.data)
