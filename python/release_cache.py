"""Finds a release's wheel or archive of these sources in the cache folder, so that nothing has to be compiled.

    python3 python/release_cache.py --sources           prints the hash of the sources
    python3 python/release_cache.py --prefix TORCH      prints the folder of unpacked programs and libraries that fit the
                                                        LibTorch in folder TORCH, or nothing

`pip install .` takes such a wheel through python/wheel_backend.py, demo.sh a wheel or an archive. scripts/release.sh writes both.
The folder is $DEEPSPEED_CPP_CACHE, as in scripts/setup.sh. A file fits if it was made of the very sources of this checkout, for
this kind of machine, Python and torch. Another one is passed over, and stderr says why. What is compiled with options of its own
(CUDAARCHS, CMAKE_ARGS) is compiled.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
_READ_BY_BUILDS = ("CMakeLists.txt", "pyproject.toml", "cmake", "deepspeed", "apps", "python", "examples")
_OPTIONS = ("CMAKE_ARGS", "CUDAARCHS", "SKBUILD_CMAKE_ARGS", "SKBUILD_CMAKE_DEFINE")


def _say(text):
    print(f"release cache: {text}", file=sys.stderr)


def folder():
    """Returns the cache folder."""
    default = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache", "deepspeed-cpp")
    return pathlib.Path(os.environ.get("DEEPSPEED_CPP_CACHE") or default)


def sources(root=ROOT):
    """Returns a hash over the names and contents of all files that a build reads."""
    files = [path for name in _READ_BY_BUILDS for path in [root / name, *(root / name).rglob("*")] if path.is_file()]
    total = hashlib.sha256()
    for path in sorted(path.relative_to(root).as_posix() for path in files):
        if "__pycache__" not in path:
            total.update(f"{hashlib.sha256((root / path).read_bytes()).hexdigest()} {path}\n".encode())
    return total.hexdigest()


def _read(path):
    """Returns what a wheel or an archive says of itself (cmake/Install.cmake), as a dict; empty if it says nothing."""
    name = "libexec/deepspeed/release.txt"
    text = ""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            if f"deepspeed/{name}" in wheel.namelist():
                text = wheel.read(f"deepspeed/{name}").decode()
    else:
        with tarfile.open(path) as archive:
            found = next((member for member in archive if member.name.endswith(f"/{name}")), None)
            text = archive.extractfile(found).read().decode() if found else ""
    return dict((line.split(" ", 1) + [""])[:2] for line in text.splitlines())


def _has_nvcc():
    home = os.environ.get("CUDA_HOME")
    return bool(shutil.which("nvcc") or (home and os.path.exists(f"{home}/bin/nvcc")))


def _why_not(path, torch):
    """Returns why a file is not of these sources for torch's minor version, or an empty text."""
    try:
        found = _read(path)
    except (OSError, EOFError, ValueError, tarfile.TarError, zipfile.BadZipFile) as problem:
        return f"it cannot be read ({problem})"
    if not found.get("sources"):
        return "it does not say which sources it was made of"
    if found["sources"] != sources():
        return "it was made of other sources than this checkout's"
    if found.get("torch", "").split(".")[:2] != torch.split("."):
        return f"it was made for torch {found.get('torch')}, and {torch} is wanted"
    if not found.get("cuda") and _has_nvcc():
        return "it has no CUDA, and nvcc is here"
    return ""


def _fitting(patterns, torch):
    """Yields the files of the cache folder that fit, and says why others do not."""
    candidates = [path for pattern in patterns for path in sorted(folder().glob(pattern), reverse=True)]
    options = [name for name in _OPTIONS if os.environ.get(name)]
    if candidates and options:
        _say(f"{options[0]} is set: nothing is taken from {folder()}")
        return
    for path in candidates:
        why_not = _why_not(path, torch)
        if why_not:
            _say(f"{path} is not used: {why_not}")
        else:
            yield path


def wheel(torch):
    """Returns the path of a wheel for this Python and torch's minor version (a text), or None."""
    from packaging import tags, utils  # beside scikit-build-core

    here = set(tags.sys_tags())
    for path in _fitting(("deepspeed-*.whl",), torch):
        if utils.parse_wheel_filename(path.name)[3] & here:
            _say(f"{path} is used")
            return path
    return None


def _run_environment(torch_folder):
    libraries = [f"{torch_folder}/lib", *map(str, pathlib.Path(torch_folder).parent.glob("nvidia/*/lib"))]
    known = os.environ.get("LD_LIBRARY_PATH")
    return {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join([*libraries, *([known] if known else [])])}


def _unpack(path):
    """Unpacks a file beside it, once, and returns the folder of bin/, lib/ and libexec/."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    target = folder() / "unpacked" / f"{path.name}-{digest}"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = pathlib.Path(tempfile.mkdtemp(dir=target.parent, prefix="partial."))
        if path.suffix == ".whl":
            with zipfile.ZipFile(path) as archive:
                for member in archive.infolist():
                    mode = member.external_attr >> 16 & 0o777
                    place = archive.extract(member, partial)
                    if mode:
                        os.chmod(place, mode)
        else:
            shutil.unpack_archive(path, partial, format="gztar")
        try:
            partial.rename(target)
        except OSError:  # another process was faster
            shutil.rmtree(partial)
    return next(target.iterdir()) if path.suffix != ".whl" else target / "deepspeed"


def prefix(torch_folder):
    """Returns the folder of programs and libraries that run here with the LibTorch in a folder, or None."""
    header = (pathlib.Path(torch_folder) / "include/torch/headeronly/version.h").read_text()
    torch = ".".join(re.search(rf"TORCH_VERSION_{part} (\d+)", header)[1] for part in ("MAJOR", "MINOR"))
    machine = platform.machine()
    for path in _fitting((f"deepspeed-cpp-*-{machine}*.tar.gz", f"deepspeed-*_{machine}.whl"), torch):
        place = _unpack(path)
        # The loader knows best whether the system's libraries are new enough.
        words = [place / "libexec/deepspeed/gpt2", "--help"]
        try:
            run = subprocess.run(words, env=_run_environment(torch_folder), capture_output=True, text=True)
            problem = run.stderr.strip().splitlines()[-1:] if run.returncode else []
            works = run.returncode == 0
        except OSError as error:
            problem, works = [str(error)], False
        if works:
            _say(f"{path} is used")
            return place
        _say(f"{path} is not used: its programs do not start here ({''.join(problem)})")
    return None


def main(arguments):
    """Prints what the first line of this file says."""
    if arguments == ["--sources"]:
        print(sources())
    elif len(arguments) == 2 and arguments[0] == "--prefix":
        print(prefix(arguments[1]) or "", end="")
    else:
        raise SystemExit("usage: release_cache.py --sources | --prefix TORCH")


if __name__ == "__main__":
    main(sys.argv[1:])
