"""What shows the core's optimizer as one of torch, of the class that DeepSpeed gives it."""
