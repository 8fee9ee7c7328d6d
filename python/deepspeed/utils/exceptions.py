"""Defines errors of older calls."""


class DeprecatedException(Exception):
    """Says that a call no longer exists."""
