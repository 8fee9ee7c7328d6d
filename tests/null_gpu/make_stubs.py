#!/usr/bin/env python3
"""Writes stand-ins for the libraries that torch's CUDA libraries load: make_stubs.py TORCH_LIB OUT.

OUT/<soname>.cpp has a function for each symbol that a library of TORCH_LIB wants, which returns 0 or, where the library makes a handle,
one that is not null; OUT/<soname>.map gives them the versions that are asked for. Those of the CUDA runtime and of NCCL are weak: the
null GPU's own functions stand before them, and what it lacks says so when it is called. OUT/sonames.txt lists the libraries.
"""

import collections
import pathlib
import re
import subprocess
import sys

SYSTEM = re.compile(r"^(lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s|gomp|util)\.so|ld-linux|libcupti\.so|libmpi|libibverbs|libmlx5)")
# By the name of a symbol, where no version tells whose it is.
PREFIXES = [("cusparseLt", "libcusparseLt"), ("nccl", "libnccl"), ("cuFile", "libcufile"), ("nvshmem", "libnvshmem_host"),
            ("curand", "libcurand"), ("cusolver", "libcusolver"), ("cusparse", "libcusparse"), ("cufft", "libcufft"),
            ("cudnn", "libcudnn"), ("cublasLt", "libcublasLt"), ("cublas", "libcublas"), ("nvrtc", "libnvrtc"),
            ("cuda", "libcudart"), ("__cuda", "libcudart")]  # fmt: skip
OWN = ("libcudart.so", "libnccl.so")  # tests/null_gpu has functions of these
# Results that a caller relies on.
BODIES = {
    "cublasGetStatusString": "const char* {}(int) {{ return \"a status of the null GPU\"; }}",
    "cudnnGetErrorString": "const char* {}(int) {{ return \"a status of the null GPU\"; }}",
    "cudnnGetVersion": "unsigned long {}() {{ return 91900; }}",
    "cublasGetMathMode": "int {}(void*, int* mode) {{ *mode = 0; return 0; }}",
    "cublasGetPointerMode_v2": "int {}(void*, int* mode) {{ *mode = 0; return 0; }}",
    "cublasGetProperty": "int {}(int, int* value) {{ *value = 13; return 0; }}",
    "cublasLtMatmulAlgoGetHeuristic": "int {}(void*, void*, void*, void*, void*, void*, void*, int, void*, "
                                      "int* found) {{ *found = 1; return 0; }}",
    "cuGetErrorString": "int {}(int, const char** text) {{ *text = \"an error of the null GPU\"; return 0; }}",
    "cuCtxGetCurrent": "int {}(void** context) {{ *context = reinterpret_cast<void*>(0x10); return 0; }}",
    "cuDevicePrimaryCtxGetState": "int null_gpu_has_context(int) __attribute__((weak));\n"
                                  "int {}(int d, unsigned* flags, int* is_active) {{ if (flags) *flags = 0; "
                                  "*is_active = null_gpu_has_context ? null_gpu_has_context(d) : 0; return 0; }}",
}  # fmt: skip
HANDLE = re.compile(r"^(cublas|cublasLt|cudnn|cusparse|cusolverDn|cufft)(Create|MatmulPreferenceCreate|MatmulDescCreate|"
                    r"MatrixLayoutCreate)(_v2)?$")  # fmt: skip
COUNTED = re.compile(r"[gG]emm|Matmul$|GraphExecute|BackendExecute")


def read(tool, *arguments):
    return subprocess.run([tool, *arguments], capture_output=True, text=True, check=True).stdout


def wanted(folder):
    """Returns the symbols, with the version that is asked for, of each library that is none of torch's."""
    files = sorted(folder.glob("*.so"))
    sonames = {name for file in files for name in re.findall(r"NEEDED.*\[(.*)\]", read("readelf", "-d", file))}
    sonames -= {file.name for file in folder.iterdir()}
    sonames = {name for name in sonames if not SYSTEM.match(name)} | {"libcuda.so.1"}
    by_library = {name: {} for name in sonames}
    for file in files:
        for line in read("nm", "-D", "--undefined-only", file).splitlines():
            symbol, _, version = line.split()[-1].partition("@")
            if version in by_library:
                by_library[version][symbol] = version
            elif owner := owner_of(symbol, sonames):
                by_library[owner].setdefault(symbol, version)
    return by_library


def owner_of(symbol, sonames):
    for prefix, library in PREFIXES:
        if symbol.startswith(prefix):
            return next((name for name in sonames if name.startswith(library + ".so")), None)
    return "libcuda.so.1" if re.match(r"cu[A-Z]", symbol) else None


def stub(symbol, number):
    if symbol in BODIES:
        return BODIES[symbol].format(symbol)
    if HANDLE.match(symbol):
        return f"int {symbol}(void** handle) {{ *handle = reinterpret_cast<void*>({0x1000 + 16 * number:#x}); return 0; }}"
    if COUNTED.search(symbol):
        return f'int {symbol}(...) {{ if (null_gpu_count) null_gpu_count("library {symbol}"); return 0; }}'
    return f"int {symbol}(...) {{ return 0; }}"


def write(path, text):
    """Writes a file that has changed: others keep their time, so that nothing is compiled again."""
    if not path.exists() or path.read_text() != text + "\n":
        path.write_text(text + "\n")


def main():
    folder, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    by_library = wanted(folder)
    for soname, symbols in by_library.items():
        lines = ["#include <cstdio>", 'extern "C" {', "void null_gpu_count(const char*) __attribute__((weak));"]
        for number, symbol in enumerate(sorted(symbols)):
            if soname.startswith(OWN):
                lines.append(f'__attribute__((weak)) int {symbol}(...) {{ std::fputs("[null gpu] {symbol} is not there\\n", stderr); '
                             f"return {801 if soname.startswith(OWN[0]) else 5}; }}")  # fmt: skip
            else:
                lines.append(stub(symbol, number))
        write(out / f"{soname}.cpp", "\n".join([*lines, "}"]))
        versions = collections.Counter(version for version in symbols.values() if version)
        node = next(iter(versions), "")
        write(out / f"{soname}.map", f"{node} {{ global: *; }};")
    write(out / "sonames.txt", "\n".join(sorted(by_library)))


if __name__ == "__main__":
    main()
