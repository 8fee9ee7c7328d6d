"""Provides batches by number of tokens. Curricula and layers that drop tokens raise errors."""
