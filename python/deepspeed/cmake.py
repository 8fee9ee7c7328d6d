"""The installed package as a C++ library: `python -m deepspeed.cmake` prints the prefix for CMake's find_package(deepspeed)."""

from __future__ import annotations

import importlib.util
import os
import sys

import deepspeed


def prefix() -> str:
    """Returns the folder that holds headers, libraries and lib/cmake/deepspeed."""
    for folder in deepspeed.__path__:
        if os.path.exists(os.path.join(folder, "lib/cmake/deepspeed/deepspeedConfig.cmake")):
            return os.path.abspath(folder)
    raise FileNotFoundError(
        f"[deepspeed.cmake] {', '.join(deepspeed.__path__)} holds no files for CMake: this package was not installed by "
        "`pip install .` or from a wheel (an editable install and a build folder have none)"
    )


def main() -> None:
    """Prints the prefix, and to stderr what CMake cannot know: where torch is, if it is not beside the package."""
    try:
        folder = prefix()
    except FileNotFoundError as problem:
        sys.exit(str(problem))
    spec = importlib.util.find_spec("torch")
    torch = spec.submodule_search_locations[0] if spec and spec.submodule_search_locations else ""
    beside = os.path.join(os.path.dirname(folder), "torch")
    if not os.path.exists(beside) or not os.path.samefile(torch, beside):
        print(f"torch is not beside the package: pass -DDEEPSPEED_TORCH_DIR={torch} to CMake", file=sys.stderr)
    print(folder)


if __name__ == "__main__":
    main()
