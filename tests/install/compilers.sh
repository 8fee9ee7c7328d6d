#!/usr/bin/env bash
# Compiles the library, the programs and the Python module by each compiler that is installed, with warnings as errors:
#   tests/install/compilers.sh [COMPILERS...]      (g++-11 to g++-14, clang++-16 to clang++-19)
# One takes a quarter of an hour of two cores. Run scripts/setup.sh --tests first.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cache=${DEEPSPEED_CPP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/deepspeed-cpp}
version=${TORCH_VERSION:-2.11.0}
[ $# -gt 0 ] || set -- g++-{11,12,13,14} clang++-{16,17,18,19}
failed=0
for compiler; do
  if ! command -v "$compiler" >/dev/null; then
    echo "$compiler: not installed"
    continue
  fi
  build=$root/build/compilers/$compiler
  mkdir -p "$build"
  if cmake -S "$root" -B "$build" -G Ninja -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_BUILD_TYPE=Release -DDEEPSPEED_WERROR=ON \
       -DDEEPSPEED_CUDA=OFF -DDEEPSPEED_TESTS=OFF -DDEEPSPEED_BENCHMARKS=OFF -DDEEPSPEED_PYTHON=ON \
       -DPython_EXECUTABLE="$cache/python-$version/bin/python" -DDEEPSPEED_TORCH_DIR="$(cat "$cache/torch_dir-$version")" \
       >"$build.log" 2>&1 && ninja -k 0 -C "$build" >>"$build.log" 2>&1; then
    echo "$compiler: no warning"
  else
    echo "$compiler: failed, $(grep -c 'error:' "$build.log") errors, see $build.log"
    failed=1
  fi
done
exit $failed
