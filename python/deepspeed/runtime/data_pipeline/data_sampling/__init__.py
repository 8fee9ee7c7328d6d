"""Which samples come when."""
