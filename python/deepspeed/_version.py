"""The package's version, DeepSpeed's whose names it has and that of the engine, and whether the build fits where it runs."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import sys
import sysconfig
from typing import TYPE_CHECKING

from deepspeed._build import PYTHON, TORCH, VERSION  # TORCH: the minor version that _core was built with

if TYPE_CHECKING:
    from collections.abc import Iterator

__version__ = VERSION
__version_major__, __version_minor__, __version_patch__ = (int(part) for part in __version__.partition("+")[0].split("."))
git_hash = "unknown"
git_branch = "unknown"

_ANEW = "build the package anew here (`pip install .` in a checkout)"


def check_python() -> None:
    """Raises ImportError where this is another Python than that of the build, or one without torch."""
    found = sysconfig.get_config_var("SOABI")
    if found != PYTHON:
        raise ImportError(
            f"deepspeed {__version__} was built for {PYTHON}, and this Python is {found}: install the wheel of it, or {_ANEW}"
        )
    if "torch" not in sys.modules and importlib.util.find_spec("torch") is None:
        raise ImportError(f"deepspeed {__version__} needs torch {TORCH}, and no torch is installed: pip install 'torch=={TORCH}.*'")


def check_torch(found: str) -> None:
    """Raises ImportError where torch's version `found` is another minor version than the one of the build."""
    if not found.startswith(TORCH + "."):
        raise ImportError(
            f"deepspeed {__version__} was built for torch {TORCH}, and this is torch {found}: install torch=={TORCH}.*, the wheel "
            f"of this torch, or {_ANEW}"
        )


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Says in one line why _core cannot be loaded, where the loader's text is known."""
    try:
        yield
    except ImportError as problem:
        text = str(problem)
        older = re.search(r"(\S*/lib[^/ ]*[.]so[.0-9]*): version `?'?((?:GLIBC|GLIBCXX|CXXABI|GCC)_[0-9.]+)'? not found", text)
        symbol = re.search(r"undefined symbol: (\w+)", text)
        if older:
            conda = " (conda install -c conda-forge libstdcxx-ng brings a newer one)" if "libstdc++" in older[1] else ""
            raise ImportError(
                f"deepspeed {__version__} was built for a newer system: it needs {older[2]}, which {older[1]} lacks{conda}. "
                f"Install a wheel of a release, which needs glibc 2.28, or {_ANEW}"
            ) from None
        if symbol:
            raise ImportError(
                f"deepspeed {__version__} was built for torch {TORCH} of PyTorch's wheels, and this torch is another build, "
                f"without {symbol[1]}: {_ANEW}"
            ) from None
        raise
