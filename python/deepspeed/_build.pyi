"""Types of the module that CMake writes: what the engine was built for."""

TORCH: str
PYTHON: str
CUDA: str
CUDA_ARCHITECTURES: str
VERSION: str
