"""Prints AcceleratorState, or the error, as tests/accelerate/program/state.cpp does."""

import sys

from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import InitProcessGroupKwargs

try:
    accelerator = Accelerator(kwargs_handlers=[InitProcessGroupKwargs(backend="gloo")])
    accelerator.print(f"{AcceleratorState()}")
except ValueError as error:
    print(f"ERROR {error}", flush=True)
    sys.exit(1)
