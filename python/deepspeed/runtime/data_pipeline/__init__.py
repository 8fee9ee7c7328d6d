"""Data efficiency: batches of so many tokens are here; curricula and layers that drop tokens refuse calls."""
