#!/usr/bin/env python3
"""Makes a folder to build against for systems of glibc 2.28 and libstdc++ of GCC 8, which manylinux_2_28 names.

    older_system.py FOLDER        writes it, once; FOLDER/toolchain.cmake is what CMake takes (--toolchain)

Another version of this file, or of the compiler, writes it anew.

The compiler and its C++ headers are this machine's. In the folder are
- glibc 2.31, libstdc++ and libgcc_s of Debian 11, from packages whose SHA-256 is checked. Functions keep their versions for
  ever, so without those that are newer the libraries offer the linker what glibc 2.28 and GCC 8 have;
- what C++ 20 needs beyond GCC 8, from the compiler's own libstdc++.a: an archive of the functions that the library above lacks,
  hidden, all others being references to that library. Red Hat's compilers for older systems come with such an archive.

The linker alone sees these libraries. Programs run with those of the system, which may be newer.
"""

import hashlib
import os
import pathlib
import platform
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import urllib.request

NEWEST = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11), "GCC": (7, 0, 0)}

_MACHINE = platform.machine()
_TRIPLET = f"{_MACHINE}-linux-gnu"
_SERVERS = ("http://deb.debian.org/debian/pool/main", "http://archive.debian.org/debian/pool/main")
_PACKAGES = {
    "x86_64": {
        "g/glibc/libc6_2.31-13+deb11u11_amd64.deb": "05f7264da867b37f4c5ce49266b558ea1e81e05a9464f623152fca70f3550282",
        "g/glibc/libc6-dev_2.31-13+deb11u11_amd64.deb": "e7f7b45d9c5cfcf37609f0b6efd3c645272c812144703af89dfd32218fcb0fd3",
        "g/gcc-10/libgcc-s1_10.2.1-6_amd64.deb": "e478f2709d8474165bb664de42e16950c391f30eaa55bc9b3573281d83a29daf",
        "g/gcc-10/libstdc++6_10.2.1-6_amd64.deb": "5c155c58935870bf3b4bfe769116841c0d286a74f59eccfd5645693ac23f06b1",
    },
    "aarch64": {
        "g/glibc/libc6_2.31-13+deb11u11_arm64.deb": "baaa9aa184e2f21738c5819055e6740cc5b22f198e3f416e33f82b40ff6933d8",
        "g/glibc/libc6-dev_2.31-13+deb11u11_arm64.deb": "28d478134722dcd4b0bd2045a199301d18713bf95947b9fce66634e7aeacab2e",
        "g/gcc-10/libgcc-s1_10.2.1-6_arm64.deb": "e2fcdb378d3c1ad1bcb64d4fb6b37aab44011152beca12a4944f435a2582df1f",
        "g/gcc-10/libstdc++6_10.2.1-6_arm64.deb": "7869aa540cc46e9f3d4267d5bde2af0e5b429a820c1d6f1a4cfccfe788c31890",
    },
}

# Members of libstdc++.a with variables of their own are left out of the archive, but for these:
_STATE = {
    "futex.o": "it remembers that the kernel lacks a system call",
}

_TOOLCHAIN = """\
# Written by scripts/wheel/older_system.py.
set(_root "${CMAKE_CURRENT_LIST_DIR}")
set(CMAKE_CXX_FLAGS_INIT "--sysroot=${_root} -isystem ${_root}/first")
set(CMAKE_CUDA_FLAGS_INIT "-Xcompiler=--sysroot=${_root},-isystem,${_root}/first")
foreach(_kind EXE SHARED MODULE)
  # -B: the compiler would find its own system's files first. Without sections that nobody refers to, objects of
  # libstdc++_beyond.a are no more than what is used of them.
  set(CMAKE_${_kind}_LINKER_FLAGS_INIT
    "--sysroot=${_root} -L${_root}/link -B${_root}/usr/lib/@TRIPLET@ -L${_root}/lib/@TRIPLET@ -Wl,-rpath-link,${_root}/link,--gc-sections")
endforeach()
string(APPEND CMAKE_SHARED_LINKER_FLAGS_INIT " -Wl,-z,defs")
""".replace("@TRIPLET@", _TRIPLET)

# libstdc++ was configured with a newer glibc: its headers would call functions of 2.30.
_CONFIG = """\
#include_next <bits/c++config.h>
#undef _GLIBCXX_USE_PTHREAD_COND_CLOCKWAIT
#undef _GLIBCXX_USE_PTHREAD_MUTEX_CLOCKLOCK
#undef _GLIBCXX_USE_PTHREAD_RWLOCK_CLOCKLOCK
"""


# The archive's functions were compiled with a newer glibc, too. They ask this whether they may do without atomic instructions.
_ABSENT_GLIBC = '__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;\n'


def fail(text):
    raise SystemExit(f"older_system: {text}")


def is_newer(version):
    """Whether a version of a symbol, such as GLIBC_2.34, is newer than what the wheel may need."""
    found = re.fullmatch(r"(GLIBCXX|GLIBC|CXXABI|GCC)_([0-9.]+)", version)
    return found is not None and tuple(map(int, found[2].split("."))) > NEWEST[found[1]]


def _order(version):
    return [int(part) for part in re.findall(r"[0-9]+", version)]


class Elf:
    """An ELF file of 64 bits, little-endian, in memory: its sections, and its symbols as editable records."""

    def __init__(self, data):
        self.data = bytearray(data)
        if self.data[:6] != b"\x7fELF\x02\x01":
            fail("a file is no ELF of 64 bits, little-endian")
        table, size, count, names = *struct.unpack_from("<Q", data, 40), *struct.unpack_from("<HHH", data, 58)
        self.sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * size) for i in range(count)]
        self.names = [self._text(self.sections[names][4] + section[0]) for section in self.sections]

    def _text(self, offset):
        return bytes(self.data[offset : self.data.index(0, offset)]).decode()

    def find(self, kind):
        """Returns the index of the section of a type, or None."""
        return next((i for i, section in enumerate(self.sections) if section[1] == kind), None)

    def symbols(self, kind):
        """Yields (offset, name, info, other, section index) of a symbol table (2: all, 11: dynamic)."""
        index = self.find(kind)
        if index is None:
            return
        _, _, _, _, start, size, strings, *_ = self.sections[index]
        for offset in range(start, start + size, 24):
            name, info, other, section = struct.unpack_from("<IBBH", self.data, offset)
            yield offset, self._text(self.sections[strings][4] + name), info, other, section

    def versions(self):
        """Returns the names of the versions that a library defines, by index."""
        found = {}
        index = self.find(0x6FFFFFFD)
        if index is None:
            return found
        _, _, _, _, at, _, strings, *_ = self.sections[index]
        while True:
            _, _, number, _, _, first, following = struct.unpack_from("<HHHHIII", self.data, at)
            found[number] = self._text(self.sections[strings][4] + struct.unpack_from("<I", self.data, at + first)[0])
            if not following:
                return found
            at += following


def without_newer(data):
    """Returns a library whose newer symbols are hidden from the linker, and the names of those that it still offers.

    A version with the bit 0x8000 is none that a new program is linked to. Of a function with several versions the newest
    allowed one loses the bit.
    """
    elf = Elf(data)
    versions = elf.versions()
    table = elf.sections[elf.find(0x6FFFFFFF)][4]
    choices = {}
    for index, (_, name, _, _, section) in enumerate(elf.symbols(11)):
        number = struct.unpack_from("<H", elf.data, table + 2 * index)[0]
        if section != 0 and number & 0x7FFF > 1:
            choices.setdefault(name, []).append((versions[number & 0x7FFF], table + 2 * index, number))
    offered = set()
    for name, found in choices.items():
        has_default = any(not number & 0x8000 for _, _, number in found)
        allowed = [choice for choice in found if not is_newer(choice[0])]
        for _, place, number in found:
            struct.pack_into("<H", elf.data, place, number | 0x8000)
        if has_default and allowed:
            current = [choice for choice in allowed if not choice[2] & 0x8000]
            _, place, number = current[0] if current else max(allowed, key=lambda choice: _order(choice[0]))
            struct.pack_into("<H", elf.data, place, number & 0x7FFF)
            offered.add(name)
    return bytes(elf.data), offered


def has_state(elf):
    """Whether an object file has variables, or code that runs at the start."""
    return any(
        section[1] in (1, 8, 14) and section[2] & 3 == 3 and section[5] and not re.match(r"[.]data[.]rel[.](ro|local[.]DW[.]ref[.])", name)
        for section, name in zip(elf.sections, elf.names)
    )


def beyond(data, offered):
    """Returns an object file of libstdc++.a that defines what `offered` lacks, hidden; of the rest it refers to the library.

    None stands for a file that has nothing more to give.
    """
    elf = Elf(data)
    gives = False
    for offset, name, info, other, section in elf.symbols(2):
        if info >> 4 == 0 or section == 0:  # local, or a reference already
            continue
        if name in offered:
            struct.pack_into("<BBHQQ", elf.data, offset + 4, info & 0xF0, other & ~3, 0, 0, 0)
        else:
            elf.data[offset + 5] = other & ~3 | 2  # STV_HIDDEN
            gives = True
    return bytes(elf.data) if gives else None


def _sources(name):
    """Yields where a package may be had, and a function that reads it."""
    given = pathlib.Path(os.environ.get("DEEPSPEED_DEPS_DIR") or os.devnull, os.path.basename(name))
    if given.exists():
        yield given, given.read_bytes
    for server in _SERVERS:
        address = f"{server}/{name}"
        yield address, lambda address=address: urllib.request.urlopen(address, timeout=30).read()


def _download(name, digest, folder):
    problems = []
    for source, read in _sources(name):
        try:
            data = read()
        except OSError as problem:
            problems.append(f"{source}: {problem}")
            continue
        found = hashlib.sha256(data).hexdigest()
        if found == digest:
            target = folder / os.path.basename(name)
            target.write_bytes(data)
            return target
        problems.append(f"{source} has the SHA-256 {found}, expected {digest}")
    fail("; ".join(problems))


def _run(*words, folder=None):
    return subprocess.run(words, cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout


def _unpack(package, folder):
    parts = _run("ar", "t", package).split()
    archive = next(part for part in parts if part.startswith("data.tar"))
    data = subprocess.run(("ar", "p", package, archive), check=True, stdout=subprocess.PIPE).stdout
    subprocess.run(("tar", "--extract", "--xz", "--directory", folder), input=data, check=True)


def _make_relative(folder):
    """Lets links of the packages point into the folder: they name places of a whole system."""
    for path in folder.rglob("*"):
        if path.is_symlink() and os.path.isabs(os.readlink(path)):
            target = folder / os.readlink(path).lstrip("/")
            path.unlink()
            path.symlink_to(os.path.relpath(target, path.parent))


def _host_headers(folder):
    """Links the headers that are no matter of glibc: the compiler's, the kernel's, liburing's."""
    include = folder / "usr/include"
    for name in ("c++", "linux", "asm-generic", "mtd", "rdma", "liburing.h", "liburing"):
        if pathlib.Path("/usr/include", name).exists():
            (include / name).symlink_to(f"/usr/include/{name}")
    for host in [
        *pathlib.Path("/usr/include", _TRIPLET).glob("python3.*"),
        *(pathlib.Path("/usr/include", _TRIPLET, n) for n in ("c++", "asm")),
    ]:
        if host.exists():
            (include / _TRIPLET / host.name).symlink_to(host)


def _older_libraries(folder):
    """Hides what is newer in all shared libraries; returns what libstdc++ still offers."""
    offered = set()
    for path in [*(folder / "lib" / _TRIPLET).iterdir(), *(folder / "usr/lib" / _TRIPLET).glob("libstdc++.so.6.*")]:
        if path.is_symlink() or not path.is_file() or path.read_bytes()[:4] != b"\x7fELF" or not Elf(path.read_bytes()).versions():
            continue
        data, names = without_newer(path.read_bytes())
        path.write_bytes(data)
        if path.name.startswith(("libstdc++", "libgcc_s")):
            offered |= names
    link = folder / "link"
    link.mkdir()
    (link / "libgcc_s.so").write_text(f"GROUP ( /lib/{_TRIPLET}/libgcc_s.so.1 -lgcc )\n")
    (link / "libstdc++.so").write_text(f"INPUT ( /usr/lib/{_TRIPLET}/libstdc++.so.6 /link/libstdc++_beyond.a )\n")
    # A wheel takes liburing along, so the linker finds this machine's: programs do not name it, but the library does.
    for path in pathlib.Path(f"/usr/lib/{_TRIPLET}").glob("liburing.so.?"):
        shutil.copy(path, link)
    return offered


def _archive_beyond(folder, compiler, offered):
    members = folder / "members"
    members.mkdir()
    source = pathlib.Path(_run(compiler, "-print-file-name=libstdc++.a").strip()).resolve()
    _run("ar", "x", str(source), folder=members)
    kept = []
    for path in sorted(members.glob("*.o")):
        data = path.read_bytes()
        if has_state(Elf(data)) and path.name not in _STATE:
            continue
        edited = beyond(data, offered)
        if edited:
            path.write_bytes(edited)
            kept.append(path.name)
    (members / "_glibc.c").write_text(_ABSENT_GLIBC)
    _run(compiler, "-x", "c", "-c", "-O2", "-fPIC", "_glibc.c", folder=members)
    _run("ar", "rcs", str(folder / "link/libstdc++_beyond.a"), *kept, "_glibc.o", folder=members)
    shutil.rmtree(members)


def make(target, compiler, stamp):
    if _MACHINE not in _PACKAGES:
        fail(f"the processor is {_MACHINE}, expected x86_64 or aarch64")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f"{target.name}.partial.") as name:
        folder = pathlib.Path(name, "root")
        folder.mkdir()
        for package, digest in _PACKAGES[_MACHINE].items():
            _unpack(_download(package, digest, pathlib.Path(name)), folder)
        _make_relative(folder)
        _host_headers(folder)
        offered = _older_libraries(folder)
        _archive_beyond(folder, compiler, offered)
        (folder / "toolchain.cmake").write_text(_TOOLCHAIN)
        (folder / "first/bits").mkdir(parents=True)
        (folder / "first/bits/c++config.h").write_text(_CONFIG)
        (folder / "made_by").write_text(stamp)
        if target.exists():
            target.rename(pathlib.Path(name, "former"))
        folder.rename(target)


def main(target):
    """Makes the folder, where it is not there or was made by another version."""
    compiler = os.environ.get("CXX", "g++")
    digest = hashlib.sha256(pathlib.Path(__file__).read_bytes()).hexdigest()
    stamp = f"{digest}\n{_run(compiler, '--version')}"
    made_by = target / "made_by"
    if not made_by.exists() or made_by.read_text() != stamp:
        make(target, compiler, stamp)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        fail("usage: older_system.py FOLDER")
    main(pathlib.Path(sys.argv[1]).absolute())
