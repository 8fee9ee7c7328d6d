"""Checks that the packages exist by which monitors write."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

_LEAST_COMET = "3.41.0"


def check_tb_availability() -> None:
    _require("tensorboard", "tensorboard", "tensorboard")


def check_wandb_availability() -> None:
    _require("wandb", "wandb", "wandb")


def check_comet_availability() -> None:
    from packaging.version import parse

    found = _require("comet", "comet_ml", f"comet_ml>={_LEAST_COMET}")
    if parse(found.__version__) < parse(_LEAST_COMET):
        raise ImportError(
            f"comet: comet_ml is {found.__version__}, expected {_LEAST_COMET} or newer: pip install 'comet_ml>={_LEAST_COMET}'"
        )


def _require(section: str, package: str, wanted: str) -> ModuleType:
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ImportError(
            f"the config's section {section!r} writes by the package {package}, which is not there: pip install '{wanted}', or leave "
            f"the section out ({error})"
        ) from error
