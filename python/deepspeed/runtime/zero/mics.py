"""MiCS: shards of a model within groups of ranks."""
from deepspeed._errors import not_supported_class

_WAY_OUT = "models are partitioned over all ranks; use zero.Init, and leave mics_shard_size out of the config"

MiCS_Init = not_supported_class("deepspeed.zero.MiCS_Init", _WAY_OUT)
MiCS_Optimizer = not_supported_class("deepspeed.runtime.zero.mics.MiCS_Optimizer", _WAY_OUT)
