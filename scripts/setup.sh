#!/usr/bin/env bash
# Prepares the machine: Debian packages and LibTorch. Does nothing, at once, where everything is there.
# `scripts/setup.sh --tests` also installs what the tests alone need: mpirun, and a virtual environment of Python with torch
# (3 GB once, $CACHE/python-<version>), in which the tests of the Python package run. `scripts/setup.sh --clients` makes another
# one over it with Accelerate, Transformers and the other clients ($CACHE/clients-<version>), and a light one with an older
# Accelerate ($CACHE/clients-accelerate-0.30-<version>). `scripts/setup.sh --cuda` fetches CUDA's compiler where there is
# none, as on a machine with a GPU.
#
# What it installs:
#   - Debian packages (below), when run as root; else it says which are missing and stops.
#   - LibTorch, into a cache folder outside the checkout that every checkout shares
#     ($DEEPSPEED_CPP_CACHE, else $XDG_CACHE_HOME/deepspeed-cpp, else ~/.cache/deepspeed-cpp), unless
#     DEEPSPEED_TORCH_DIR names one or python3 has a supported torch. The torch wheel alone, with NVIDIA's run-time and
#     CUPTI libraries that its CPU library loads, is enough to compile and run C++ without a GPU. A machine with a GPU gets
#     all of NVIDIA's libraries that torch loads there.
#   - On a machine with a GPU that has no nvcc: NVIDIA's wheels of it, of torch's CUDA version ($CACHE/cuda-<version>).
# It writes the folder of torch to $CACHE/torch_dir-<version>, which scripts/build.sh reads.
#
# TORCH_VERSION chooses another version (tested: see docs/installation.md).
set -euo pipefail

torch_version=${TORCH_VERSION:-2.11.0}
cache=${DEEPSPEED_CPP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/deepspeed-cpp}
record=$cache/torch_dir-$torch_version
packages=(g++ cmake ninja-build ccache git ca-certificates python3 python3-pip
          nlohmann-json3-dev libcli11-dev libspdlog-dev libhwy-dev libgloo-dev liburing-dev libgtest-dev libgmock-dev)
python=$cache/python-$torch_version
clients=$cache/clients-$torch_version
older_clients=$cache/clients-accelerate-0.30-$torch_version
for_tests=false
for_clients=false
for_cuda=false
if [ -e /dev/nvidiactl ] || [ -e /dev/dxg ]; then for_cuda=true; fi
[ "${1:-}" != --clients ] || for_clients=true
if [ "${1:-}" = --tests ] || $for_clients; then
  for_tests=true
  packages+=(openmpi-bin python3-dev python3-venv libboost-context-dev)
fi

if [ "${1:-}" = --cuda ]; then for_cuda=true; fi

say() { printf 'setup: %s\n' "$*" >&2; }

missing_packages() {
  local package
  for package in "${packages[@]}"; do
    dpkg-query -W -f='${Status}\n' "$package" 2>/dev/null | grep -q '^install ok installed$' || echo "$package"
  done
}

install_packages() {
  local missing
  mapfile -t missing < <(missing_packages)
  [ ${#missing[@]} -eq 0 ] && return
  if [ "$(id -u)" -ne 0 ]; then
    say "these Debian packages are missing: ${missing[*]}"
    say "install them as root: apt-get update && apt-get install --no-install-recommends ${missing[*]}"
    exit 1
  fi
  say "installing Debian packages: ${missing[*]}"
  local log
  log=$(mktemp)
  if ! { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
         "${missing[@]}"; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    say "apt-get failed; its log: $log"
    exit 1
  fi
  rm -f "$log"
}

# The folder of a usable torch: headers and libraries of the wanted version.
usable() {
  local header=$1/include/torch/headeronly/version.h
  [ -f "$1/lib/libtorch_cpu.so" ] && [ -f "$header" ] || return 1
  local found
  found=$(sed -n 's/^#define TORCH_VERSION_\(MAJOR\|MINOR\|PATCH\) \([0-9]*\)$/\2/p' "$header" | paste -sd.)
  [ "$found" = "$torch_version" ]
}

# Whether NVIDIA's libraries lie beside the torch in folder $1, as far as this machine needs them.
has_libraries() { ! $for_cuda || [ -n "$(compgen -G "${1%/torch}/nvidia/cudnn/lib/libcudnn.so*")" ]; }

installed_torch() {
  python3 - <<'PYTHON' 2>/dev/null || true
import importlib.util
spec = importlib.util.find_spec("torch")
if spec and spec.submodule_search_locations:
    print(spec.submodule_search_locations[0])
PYTHON
}

fetch_torch() {
  local target=$cache/torch-$torch_version partial packages=("torch==$torch_version") size="3 GB"
  if ! usable "$target/torch" || ! has_libraries "$target/torch"; then
    mkdir -p "$cache"
    partial=$(mktemp -d "$cache/torch-$torch_version.partial.XXXXXX")
    if ! $for_cuda; then
      packages+=(--no-deps "nvidia-cuda-runtime>=13,<14" "nvidia-cuda-cupti>=13,<14")
      size="1.3 GB"
    fi
    say "fetching LibTorch $torch_version ($size once, into $cache)"
    python3 -m pip install --quiet --disable-pip-version-check --no-cache-dir --root-user-action=ignore \
      --target "$partial" "${packages[@]}" >&2
    if ! usable "$partial/torch"; then
      say "the torch package that was fetched has no headers of version $torch_version in $partial/torch"
      exit 1
    fi
    rm -rf "$target"
    mv "$partial" "$target" 2>/dev/null || rm -rf "$partial"  # another checkout was faster
  fi
  echo "$target/torch"
}

choose_torch() {
  local found
  if [ -n "${DEEPSPEED_TORCH_DIR:-}" ]; then
    usable "$DEEPSPEED_TORCH_DIR" || { say "DEEPSPEED_TORCH_DIR=$DEEPSPEED_TORCH_DIR holds no LibTorch $torch_version"; exit 1; }
    echo "$DEEPSPEED_TORCH_DIR"
    return
  fi
  found=$(installed_torch)
  if [ -n "$found" ] && usable "$found"; then
    echo "$found"
  else
    fetch_torch
  fi
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
requirements=$root/tests/python/requirements.txt

# The stamp is a copy of what was asked for.
has_python() { [ -x "$python/bin/python" ] && cmp -s "$requirements" "$python/requirements.txt"; }
client_requirements=$root/tests/python/clients/requirements.txt
older_client_requirements=$root/tests/python/clients/requirements-accelerate-0.30.txt
has_venv() { [ -x "$1/bin/python" ] && cmp -s "$2" "$1/requirements.txt"; }
has_clients() { has_venv "$clients" "$client_requirements" && has_venv "$older_clients" "$older_client_requirements"; }

make_python() {
  say "fetching Python's torch $torch_version with what it needs (3 GB once, into $python)"
  # One of older requirements is brought up to date: another python3 cannot make it anew in its place.
  "$python/bin/python" -m pip --version >/dev/null 2>&1 || { rm -rf "$python"; python3 -m venv "$python"; }
  "$python/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir "torch==$torch_version" -r "$requirements" >&2
  cp "$requirements" "$python/requirements.txt"
}

# Makes the virtual environment $1 of the requirements $2; torch comes from that of the tests.
make_clients() {
  local site
  if has_venv "$1" "$2"; then return; fi
  say "fetching clients of the Python package (into $1)"
  rm -rf "$1"
  python3 -m venv "$1"
  site=$("$1/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
  "$python/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])' >"$site/torch.pth"
  "$1/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir -r "$2" >&2
  cp "$2" "$1/requirements.txt"
}

# The folder of CUDA's compiler, of the CUDA version of the torch in folder $1.
toolkit_of() { echo "$cache/cuda-$(sed -n "s/^cuda.* = '\([0-9.]*\)'.*/\1/p" "$1/version.py")"; }
has_toolkit() { command -v nvcc >/dev/null || [ -x "${CUDA_HOME:-/none}/bin/nvcc" ] || [ -f "$(toolkit_of "$1")/complete" ]; }

fetch_toolkit() {
  local target=$1 version=${1##*-}
  local packages=(nvidia-cuda-nvcc nvidia-cuda-crt nvidia-nvvm nvidia-cuda-cccl nvidia-cuda-runtime)
  say "fetching CUDA's compiler $version (250 MB once, into $target)"
  rm -rf "$target"
  python3 -m pip install --quiet --disable-pip-version-check --no-cache-dir --root-user-action=ignore --no-deps \
    --target "$target" "${packages[@]/%/==$version.*}" >&2
  # The wheels hold no names for the linker.
  local folder
  folder=$(echo "$target"/nvidia/cu*)
  ln -s "$(basename "$folder"/lib/libcudart.so.*)" "$folder/lib/libcudart.so"
  ln -s lib "$folder/lib64"
  ln -s "nvidia/$(basename "$folder")" "$target/toolkit"
  touch "$target/complete"
}

if [ -z "${DEEPSPEED_TORCH_DIR:-}" ] && [ -f "$record" ] && usable "$(cat "$record")" && [ -z "$(missing_packages)" ] &&
   { ! $for_cuda || { has_libraries "$(cat "$record")" && has_toolkit "$(cat "$record")"; }; } &&
   { ! $for_tests || has_python; } && { ! $for_clients || has_clients; }; then
  exit 0
fi
install_packages
torch_dir=$(choose_torch)
mkdir -p "$cache"
printf '%s\n' "$torch_dir" >"$record.$$"
mv "$record.$$" "$record"
if $for_cuda && ! has_toolkit "$torch_dir"; then fetch_toolkit "$(toolkit_of "$torch_dir")"; fi
if $for_tests && ! has_python; then make_python; fi
if $for_clients; then
  make_clients "$clients" "$client_requirements"
  make_clients "$older_clients" "$older_client_requirements"
fi
say "ready: LibTorch $torch_version at $torch_dir"
