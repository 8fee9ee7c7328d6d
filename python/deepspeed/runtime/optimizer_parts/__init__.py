"""Shows the core's optimizer as one of torch, in DeepSpeed's class."""
