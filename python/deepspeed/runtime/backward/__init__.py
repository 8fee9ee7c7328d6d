"""Surrounds a script's own backward: access windows, gradient windows, and hooks on outputs."""
