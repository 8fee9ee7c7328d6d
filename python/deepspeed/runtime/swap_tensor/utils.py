"""Computes DeepSpeed's sizes of what goes to a disk. Here everything on a disk moves in whole blocks of `aio.block_size`."""

AIO_ALIGNED_BYTES = 1024
MIN_AIO_BYTES = 1 << 20
MIN_SWAPPABLE_BYTES = MIN_AIO_BYTES
