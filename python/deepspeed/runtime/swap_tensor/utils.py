"""Sizes of what goes to a disk in DeepSpeed; here whatever is on the disk moves in whole blocks of `aio.block_size`."""

AIO_ALIGNED_BYTES = 1024
MIN_AIO_BYTES = 1 << 20
MIN_SWAPPABLE_BYTES = MIN_AIO_BYTES
