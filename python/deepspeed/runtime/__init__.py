"""The engine and its parts."""
