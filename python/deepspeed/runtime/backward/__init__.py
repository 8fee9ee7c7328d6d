"""What surrounds a backward of a script: windows of access and of gradients, and hooks on outputs."""
