"""Builds the wheel: scikit-build-core, with the torch that is installed where pip runs.

The engine is compiled for one minor version of torch. A wheel is built with the torch that is there, and names its minor
version as what it needs; without one pip fetches 2.11 for the build. Nothing of torch is imported.

Where a release's wheel of these sources, this Python and this torch lies in the cache folder (release_cache.py), it is the one
that is built: nothing is compiled. A build with settings or options of its own compiles.
"""

import importlib.metadata
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig

from scikit_build_core import build as _build
from scikit_build_core.build import *  # noqa: F403  -- the hooks that are not below

import release_cache

_OLDEST, _NEWEST = (2, 11), (2, 15)
_WITHOUT_TORCH = "2.11"
_FOLDER = "DEEPSPEED_TORCH_DIR"


def _site_packages():
    schemes = [sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user")]
    return dict.fromkeys(sysconfig.get_paths(scheme)[name] for scheme in schemes for name in ("purelib", "platlib"))


def _find_torch():
    """Returns (folder, version) of the torch to build with, or None. An isolated build does not see it, but its folder."""
    named = os.environ.get(_FOLDER)
    for site in [str(pathlib.Path(named).parent)] if named else _site_packages():
        for found in importlib.metadata.distributions(name="torch", path=[site]):
            return pathlib.Path(site, "torch"), found.version
    return None


def _minor(version):
    return tuple(int(part) for part in version.split(".")[:2])


def _text(minor):
    return ".".join(map(str, minor))


def _chosen():
    """Returns the folder of torch, or None where pip fetches one, and the minor version."""
    found = _find_torch()
    if found is None:
        return None, _WITHOUT_TORCH
    folder, version = found
    minor = _minor(version)
    if not _OLDEST <= minor <= _NEWEST:
        raise SystemExit(
            f"deepspeed is built for torch {_text(_OLDEST)} to {_text(_NEWEST)}, and torch {version} is installed in {folder}: "
            f"install one of those first: {sys.executable} -m pip install 'torch=={_WITHOUT_TORCH}.*'"
        )
    return folder, _text(minor)


def _check_machine():
    """Ends the build where scripts/check_machine.sh has a reason to: pip asks for requirements first, before it fetches torch."""
    script = pathlib.Path(__file__).resolve().parents[1] / "scripts/check_machine.sh"
    check = subprocess.run(["sh", str(script), "--python", sys.executable], stdout=subprocess.PIPE, text=True)
    if check.returncode != 0:
        raise SystemExit("deepspeed cannot be built here:\n" + check.stdout.rstrip())


def _cached_wheel(config_settings):
    return None if config_settings else release_cache.wheel(_chosen()[1])


def get_requires_for_build_wheel(config_settings=None):
    if _cached_wheel(config_settings):
        return []
    return get_requires_for_build_editable(config_settings)


def get_requires_for_build_editable(config_settings=None):
    _check_machine()
    folder, minor = _chosen()
    needed = _build.get_requires_for_build_wheel(config_settings)
    return needed if folder is not None else [*needed, f"torch=={minor}.*"]


def _prepare():
    folder, _ = _chosen()
    if folder is not None:
        os.environ[_FOLDER] = str(folder)
    # A second build takes what the first has compiled, wherever the checkout lies (as in scripts/build.sh).
    root = pathlib.Path(__file__).resolve().parents[1]
    for name, value in (("BASEDIR", root), ("NOHASHDIR", 1), ("SLOPPINESS", "pch_defines,time_macros"), ("DEPEND", 1)):
        os.environ.setdefault(f"CCACHE_{name}", str(value))


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    cached = _cached_wheel(config_settings)
    if cached:
        return pathlib.Path(shutil.copy(cached, wheel_directory)).name
    _prepare()
    return _build.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    _prepare()
    return _build.build_editable(wheel_directory, config_settings, metadata_directory)


def _version():
    """Returns the package's version, from the lines of CMake that hold two of its parts, and torch's minor version."""
    root = pathlib.Path(__file__).resolve().parents[1]
    engine = re.search(r"project\(deepspeed VERSION ([0-9.]+)", (root / "CMakeLists.txt").read_text())
    package = re.search(r'set\(package_version "([^"$]+)\$', (root / "python/CMakeLists.txt").read_text())
    return f"{package[1]}{engine[1]}.torch{_chosen()[1]}"


def dynamic_metadata(field, settings=None, project=None):
    """scikit-build-core asks for the version and the dependencies: the minor version of torch that the engine is built for."""
    if field == "version":
        return _version()
    if field != "dependencies":
        raise ValueError(f"the field {field} is not dynamic")
    return [f"torch=={_chosen()[1]}.*", "packaging"]
