"""Errors of older calls."""


class DeprecatedException(Exception):
    """A call no longer exists."""
