"""Provides files for offloading: the engine reads and writes them as section aio says."""

from deepspeed.ops.op_builder import AsyncIOBuilder

__all__ = ["AsyncIOBuilder"]
