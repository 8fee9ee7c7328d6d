"""ZenFlow: its config alone; the engine refuses it."""
