"""Offload to a disk, which the core does."""
MIN_SWAPPABLE_BYTES = 1024 * 1024  # below it DeepSpeed keeps a parameter in memory; the core has offload_param.max_in_cpu
