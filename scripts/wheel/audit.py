#!/usr/bin/env python3
"""Checks a wheel and writes it under the platform tag that it needs: audit.py FILE FOLDER TORCH_SITE

It is refused, and nothing is written, where
- auditwheel finds a symbol that manylinux_2_28 does not have, or a library that is neither in the wheel nor one of torch's,
  NVIDIA's, or every system's;
- a file takes a symbol of glibc or libstdc++ without saying which version;
- libraries are looked for in a folder that is not relative to the file, or in none that could hold torch;
- a part is missing: the Python module, io_uring, the files for CMake, licences.
TORCH_SITE is the site-packages of a torch: names of its libraries are those that may be missing in the wheel. The files of an
archive (.tar.gz) are looked at one by one.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from older_system import is_newer

_TAG = "manylinux_2_28"
_PARTS = (
    r"deepspeed/_core\.cpython-.*\.so",
    r"deepspeed/bin/deepspeed",
    r"deepspeed/include/deepspeed/deepspeed\.h",
    r"deepspeed/lib/cmake/deepspeed/deepspeedConfig\.cmake",
    r"deepspeed/lib/libdeepspeed\.so\.[0-9.]+",
    r"deepspeed/lib/liburing\.so\.2",
    r"deepspeed/libexec/deepspeed/release\.txt",
    r"deepspeed/licenses/LICENSE-uring",
)


def _run(*words, **variables):
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, "LC_ALL": "C", **variables}).stdout


def _system_symbols():
    """Returns the names that this system's glibc and libstdc++ define under a version."""
    names = set()
    for library in ("libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1"):
        path = _run(os.environ.get("CXX", "g++"), f"-print-file-name={library}").strip()
        for line in _run("objdump", "-T", path).splitlines():
            found = re.search(r"\s(?:\.\w+|\*ABS\*)\s+[0-9a-f]{16}\s+\(?(?:GLIBC|GLIBCXX|CXXABI|GCC)_[0-9.]+\)?\s+(\w+)$", line)
            if found:
                names.add(found[1])
    return names


def _file_problems(path, name, system):
    """Yields what is wrong with a program or library of the wheel."""
    for line in _run("objdump", "-T", path).splitlines():
        found = re.search(r"\*UND\*\s+[0-9a-f]{16}\s+(?:\(([^)]+)\)\s+|\s*)(?:\.\w+\s+)?(\S+)$", line)
        if not found:
            continue
        version, symbol = found.groups()
        if version and is_newer(version):
            yield f"{name} needs {symbol} of {version}"
        if (version or "Base") == "Base" and symbol in system and " w " not in line:
            yield f"{name} needs {symbol} of the system without a version"
    dynamic = _run("readelf", "--dynamic", "--wide", path)
    paths = re.findall(r"R(?:UN)?PATH\)[^[]*\[([^]]*)\]", dynamic)
    folders = paths[0].split(":") if paths else []
    if any(not folder.startswith("$ORIGIN") for folder in folders):
        yield f"{name} looks for libraries in {paths[0]}"
    in_package = name.startswith("deepspeed/")
    if in_package and re.search(r"NEEDED.*\[lib(torch|c10)", dynamic) and not any(folder.endswith("/torch/lib") for folder in folders):
        yield f"{name} does not look for torch's libraries beside the package"


def _library_problems(report, torch_site):
    torch = {path.name for path in pathlib.Path(torch_site).glob("torch/lib/*.so*")}
    nvidia = {path.name for path in pathlib.Path(torch_site).glob("nvidia/*/lib/*.so*")}
    for library in report["external_libs"]:
        if library not in torch | nvidia:
            yield f"it needs {library}, which is neither in the wheel nor in {torch_site}"


def _files_problems(folder):
    """Returns what is wrong with the programs and libraries of a folder."""
    system = _system_symbols()
    found = []
    for path in sorted(pathlib.Path(folder).rglob("*")):
        if path.is_file() and not path.is_symlink() and path.read_bytes()[:4] == b"\x7fELF":
            found += _file_problems(path, path.relative_to(folder).as_posix(), system)
    return found


def archive_problems(path):
    """Returns what is wrong with an archive, as texts."""
    with tempfile.TemporaryDirectory() as folder, tarfile.open(path) as archive:
        archive.extractall(folder)
        return _files_problems(folder)


def problems(wheel, torch_site):
    """Returns what is wrong with a wheel, as texts."""
    # auditwheel counts what the wheel's libraries need themselves: at run time they are torch's (its libgomp), not the system's.
    places = {"LD_LIBRARY_PATH": f"{torch_site}/torch/lib"}
    report = json.loads(_run(sys.executable, "-m", "auditwheel", "show", "--json", wheel, **places))
    if "error" in report:
        return [report["error"]]
    machine = wheel.stem.rpartition("linux_")[2].rpartition("-")[2]
    found = []
    allowed = re.fullmatch(rf"manylinux_2_(\d+)_{re.escape(machine)}|manylinux(1|2010|2014)_{re.escape(machine)}", report["sym_tag"])
    if not allowed or (allowed[1] and int(allowed[1]) > int(_TAG.rpartition("_")[2])):
        found.append(f"auditwheel finds {report['sym_tag']}, expected {_TAG}_{machine}: {report['versioned_symbols']}")
    found += _library_problems(report, torch_site)
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        found += [f"{part} is missing" for part in _PARTS if not any(re.fullmatch(part, name) for name in names)]
        archive.extractall(folder)
        found += _files_problems(folder)
    return found


def main(path, folder, torch_site):
    """Writes the file into the folder, a wheel under its tag, and prints its path."""
    path = pathlib.Path(path)
    found = problems(path, torch_site) if path.suffix == ".whl" else archive_problems(path)
    if found:
        raise SystemExit("\n".join([f"wheel: {path.name} is not written:", *(f"  - {text}" for text in found)]))
    name = path.name
    if path.suffix == ".whl":
        machine = path.stem.rpartition("linux_")[2]
        name = _run(sys.executable, "-m", "wheel", "tags", "--platform-tag", f"{_TAG}_{machine}", path).split()[-1]
    os.makedirs(folder, exist_ok=True)
    target = pathlib.Path(folder, name)
    shutil.move(path.parent / name, target)
    print(target)


if __name__ == "__main__":
    main(*sys.argv[1:])
