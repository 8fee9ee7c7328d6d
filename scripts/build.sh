#!/usr/bin/env bash
# Configures and builds one CMake preset: scripts/build.sh [PRESET] [ninja targets...]. Needs scripts/setup.sh.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
preset=${1:-release}
shift || true

torch_version=${TORCH_VERSION:-2.11.0}
cache=${DEEPSPEED_CPP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/deepspeed-cpp}
torch_dir=${DEEPSPEED_TORCH_DIR:-$(cat "$cache/torch_dir-$torch_version")}
build=$root/build/$preset
[ ! -d "$cache/tools/bin" ] || PATH=$cache/tools/bin:$PATH  # CMake and Ninja of scripts/setup.sh
# What conda's compiler compiles is found where it looks.
case ${CXX:-} in "${CONDA_PREFIX:-/none}"/*) export CMAKE_PREFIX_PATH=$CONDA_PREFIX${CMAKE_PREFIX_PATH:+:$CMAKE_PREFIX_PATH} ;; esac
[ "$torch_version" = 2.11.0 ] || build=$root/build/$preset-torch-$torch_version

# The compiler cache lies beside torch; one checkout's objects serve every other.
export CCACHE_DIR=${CCACHE_DIR:-$cache/ccache} CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1
export CCACHE_SLOPPINESS=pch_defines,time_macros  # what precompiled headers need
export CCACHE_DEPEND=1  # the compiler's own list of headers instead of a run of the preprocessor

options=(-DDEEPSPEED_TORCH_DIR="$torch_dir")
# DEEPSPEED_WERROR=ON makes a warning an error, as in CI; DEEPSPEED_TESTS=ON makes it one that GoogleTest is missing;
# DEEPSPEED_CUDA=OFF leaves CUDA's kernels out.
[ -z "${DEEPSPEED_TESTS:-}" ] || options+=(-DDEEPSPEED_TESTS="$DEEPSPEED_TESTS")
[ -z "${DEEPSPEED_WERROR:-}" ] || options+=(-DDEEPSPEED_WERROR="$DEEPSPEED_WERROR")
[ "$preset" != release ] || options+=(-DDEEPSPEED_CUDA="${DEEPSPEED_CUDA:-auto}")
# nvcc: the one on PATH, of $CUDA_HOME, or what setup.sh has fetched; empty without one.
nvcc=$(command -v nvcc || compgen -G "${CUDA_HOME:-/none}/bin/nvcc" || compgen -G "$cache/cuda-*/toolkit/bin/nvcc" | tail -n 1 || true)
options+=(-DDEEPSPEED_NVCC="$nvcc")
# The Python package is built where setup.sh has made an environment for its tests.
python=$cache/python-$torch_version/bin/python
if [ "$preset" = release ] && [ -x "$python" ]; then
  options+=(-DDEEPSPEED_PYTHON=ON -DPython_EXECUTABLE="$python")
  clients=$cache/clients-$torch_version/bin/python
  [ ! -x "$clients" ] || options+=(-DDEEPSPEED_CLIENTS_PYTHON="$clients")
  older_clients=$cache/clients-accelerate-0.30-$torch_version/bin/python
  [ ! -x "$older_clients" ] || options+=(-DDEEPSPEED_OLDER_CLIENTS_PYTHON="$older_clients")
fi

cd "$root"
if [ "${options[*]}" != "$(cat "$build/configured_with" 2>/dev/null)" ] || [ ! -f "$build/build.ninja" ]; then
  mkdir -p build
  cmake --preset "$preset" -B "$build" "${options[@]}" >"$build.configure.log" 2>&1 ||
    { sed -n '/^CMake Error/,/^Call Stack/p' "$build.configure.log" | grep -v '^Call Stack' | head -n 40 >&2; exit 1; }
  echo "${options[*]}" >"$build/configured_with"
fi
if [ -t 1 ]; then
  ninja -C "$build" --quiet "$@" 1>&2
  exit
fi
log=$build/build.log
: >"$log"
# A line every 20 seconds says how far it is.
report() {
  local done_of never
  exec {never}<> <(:)  # nothing comes from it; a `sleep` would outlive this script
  while ! read -r -t 20 -u "$never"; do
    done_of=$(grep -a -o '^\[[0-9]*/[0-9]*\]' "$log" | tail -n 1 || true)
    echo "build: $((SECONDS / 60)) min $((SECONDS % 60)) s, $(sed 's/^\[\(.*\)\/\(.*\)\]/\1 of \2 steps/' <<<"${done_of:-[0/?]}")" >&2
  done
}
report &
reporter=$!
trap 'kill $reporter 2>/dev/null || true' EXIT
ninja -C "$build" "$@" >"$log" 2>&1 || { grep -a -E -A20 'FAILED|error' "$log" | head -n 60 >&2; exit 1; }
