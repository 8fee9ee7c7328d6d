#!/usr/bin/env bash
# Makes a wheel, or an archive for C++ alone, that runs on systems from glibc 2.28 on, and prints its path:
#   scripts/wheel.sh [--archive] [FOLDER]     (build/wheels)
#   PYTHON=python3.12             the CPython, 3.10 to 3.14, with its headers (python3)
#   TORCH_VERSION=2.15.0          the torch (2.11.0); the wheel is for its minor version
#   CUDAARCHS=...                 devices, as CMake names them
#   DEEPSPEED_CUDA=ON|OFF         with CUDA's kernels, or without (where there is an nvcc)
# It is the package of `pip install .`, built against the libraries that scripts/wheel/older_system.py lays out, with all that
# can be fetched built in. scripts/wheel/audit.py checks it, and writes no wheel that needs more than its name says.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
kind=wheel
if [ "${1:-}" = --archive ]; then kind=archive; shift; fi
folder=$(realpath -m "${1:-build/wheels}")
version=${TORCH_VERSION:-2.11.0}
cache=${DEEPSPEED_CPP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/deepspeed-cpp}
python=${PYTHON:-python3}
say() { printf 'wheel: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

tag=$("$python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])') || fail "PYTHON=$python is no Python"
case $tag in cp31[0-4]) ;; *) fail "PYTHON=$python is $tag, expected CPython 3.10 to 3.14" ;; esac
[ -e /usr/include/liburing.h ] || fail "liburing is missing: NVMe offload would be slow in the wheel (apt: liburing-dev)"
[ -z "$(compgen -G 'python/deepspeed/_core.*.so')" ] || fail "python/deepspeed holds a compiled module: remove it first"

# The tools, and a torch of this Python: that of the tests, where it is the one.
tools=$cache/wheel-$tag
if [ ! -e "$tools/ready" ]; then
  rm -rf "$tools"
  "$python" -m venv "$tools"
  "$tools/bin/pip" install --quiet --disable-pip-version-check "scikit-build-core>=0.10" auditwheel wheel ninja cmake >&2
  touch "$tools/ready"
fi
name=_C.cpython-${tag#cp}-
torch=
for site in ${DEEPSPEED_TORCH_DIR:+"$(dirname "$DEEPSPEED_TORCH_DIR")"} "$cache/python-$version"/lib/python*/site-packages "$cache/wheel-$tag-torch-$version"; do
  [ -z "$(compgen -G "$site/torch/$name*")" ] || { torch=$site/torch; break; }
done
if [ -z "$torch" ]; then
  site=$cache/wheel-$tag-torch-$version
  say "fetching torch $version for $tag (3 GB once, into $site)"
  rm -rf "$site"
  "$tools/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir --target "$site" "torch==$version" >&2
  torch=$site/torch
fi

system=$cache/older_system
python3 scripts/wheel/older_system.py "$system"

nvcc=$(command -v nvcc || compgen -G "${CUDA_HOME:-/none}/bin/nvcc" || compgen -G "$cache/cuda-*/toolkit/bin/nvcc" | tail -n 1 || true)
[ -n "$nvcc" ] || [ -n "${DEEPSPEED_CUDA:-}" ] || say "no nvcc was found: the wheel is without CUDA"
# Code for each device, and an intermediate one from which later devices make theirs.
export CUDAARCHS=${CUDAARCHS:-80-real;86-real;89-real;90;100-real;120-real}

partial=$(mktemp -d)
build=$PWD/build/$kind-$tag-torch-$version
log=$build.log
mkdir -p build
# CMake reads a toolchain's flags once.
[ "$build/CMakeCache.txt" -nt "$system/made_by" ] || rm -f "$build/CMakeCache.txt"
trap 'rm -rf "$partial"' EXIT
defines=(
  CMAKE_TOOLCHAIN_FILE="$system/toolchain.cmake"
  DEEPSPEED_FETCH=ON
  DEEPSPEED_EXAMPLES=ON
  DEEPSPEED_SOURCES="$(python3 python/release_cache.py --sources)"
  DEEPSPEED_NVCC="$nvcc"
  DEEPSPEED_CUDA="${DEEPSPEED_CUDA:-auto}"
)
# The compiler cache is that of scripts/build.sh.
export CCACHE_DIR=${CCACHE_DIR:-$cache/ccache} CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1 CCACHE_DEPEND=1
export CCACHE_SLOPPINESS=pch_defines,time_macros DEEPSPEED_TORCH_DIR=$torch PATH=$tools/bin:$PATH
say "compiling for torch $version (half an hour on two cores; $log)"
if ! if [ $kind = wheel ]; then
       "$tools/bin/pip" wheel --verbose --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir "$partial" \
         --config-settings=build-dir="$build" "${defines[@]/#/--config-settings=cmake.define.}" .
     else
       cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE="-O2 -DNDEBUG" -DCMAKE_INSTALL_LIBDIR=lib \
         -DDEEPSPEED_TESTS=OFF -DDEEPSPEED_BENCHMARKS=OFF "${defines[@]/#/-D}" &&
         cmake --build "$build" --target deepspeed example_gpt2 apps/all &&
         cpack --config "$build/CPackConfig.cmake" -G TGZ -B "$partial" &&
         rm -rf "$partial/_CPack_Packages"
     fi >"$log" 2>&1; then
  tail -n 30 "$log" >&2
  exit 1
fi
"$tools/bin/python" scripts/wheel/audit.py "$partial"/deepspeed* "$folder" "$(dirname "$torch")"
