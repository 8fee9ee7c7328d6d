"""Files for offloading: the engine reads and writes them by the config's section aio."""

from deepspeed.ops.op_builder import AsyncIOBuilder

__all__ = ["AsyncIOBuilder"]
