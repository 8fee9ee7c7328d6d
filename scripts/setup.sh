#!/usr/bin/env bash
# Prepares the machine: compiler, CMake, packages and LibTorch. Does nothing, at once, where everything is there.
# `scripts/setup.sh --tests` also installs what the tests alone need: GoogleTest, mpirun, and a virtual environment of Python with
# torch (3 GB once, $CACHE/python-<version>), in which the tests of the Python package run. `scripts/setup.sh --clients` makes
# another one over it with Accelerate, Transformers and the other clients ($CACHE/clients-<version>), and a light one with an older
# Accelerate ($CACHE/clients-accelerate-0.30-<version>). `scripts/setup.sh --cuda` fetches CUDA's compiler where there is
# none, as on a machine with a GPU. `scripts/setup.sh --torch` sees to LibTorch alone, for programs that are compiled already.
#
# What it installs:
#   - Packages (below): as root by apt (Debian 12 and 13, Ubuntu 22.04 and 24.04) or dnf (Rocky and RHEL 9), in an active conda
#     environment by conda. An ordinary user is told the command, and the script goes on without them: CMake fetches what the
#     library is built with (cmake/dependencies.cmake), and CMake and Ninja come from Python's registry, into $CACHE/tools.
#     A compiler, and Python 3.10 or later with pip, have to be there.
#   - LibTorch, into a cache folder outside the checkout that every checkout shares
#     ($DEEPSPEED_CPP_CACHE, else $XDG_CACHE_HOME/deepspeed-cpp, else ~/.cache/deepspeed-cpp), unless
#     DEEPSPEED_TORCH_DIR names one or python3 has a supported torch. The torch wheel alone, with NVIDIA's run-time and
#     CUPTI libraries that its CPU library loads, is enough to compile and run C++ without a GPU. A machine with a GPU gets
#     all of NVIDIA's libraries that torch loads there.
#   - On a machine with a GPU that has no nvcc: NVIDIA's wheels of it, of torch's CUDA version ($CACHE/cuda-<version>).
#   - Where there is an nvcc, and no header of the NCCL that torch was built with: NVIDIA's wheel of that NCCL, beside torch.
# It writes the folder of torch to $CACHE/torch_dir-<version>, which scripts/build.sh reads.
#
# TORCH_VERSION chooses another version (tested: see docs/installation.md).
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
torch_version=${TORCH_VERSION:-2.11.0}
cache=${DEEPSPEED_CPP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/deepspeed-cpp}
record=$cache/torch_dir-$torch_version
python=$cache/python-$torch_version
clients=$cache/clients-$torch_version
older_clients=$cache/clients-accelerate-0.30-$torch_version
for_tests=false
for_clients=false
for_cuda=false
for_build=true
if [ -e /dev/nvidiactl ] || [ -e /dev/dxg ]; then for_cuda=true; fi
[ "${1:-}" != --clients ] || for_clients=true
if [ "${1:-}" = --tests ] || $for_clients; then
  for_tests=true
fi
if [ "${1:-}" = --cuda ]; then for_cuda=true; fi
[ "${1:-}" != --torch ] || for_build=false

say() { printf 'setup: %s\n' "$*" >&2; }

case $torch_version in
  2.1[1-5].*) ;;
  *) say "TORCH_VERSION is $torch_version, and 2.11.0 to 2.15 is needed: unset it, or TORCH_VERSION=2.11.0"; exit 1 ;;
esac

# Which packages, and by what. `optional` ones may be unknown to the system: CMake then fetches what it needs
# of them. Python's headers are for `pip install .`.
conda=$(command -v mamba || command -v conda || command -v micromamba || true)
if [ -n "${CONDA_PREFIX:-}" ] && [ -n "$conda" ] && [ "$(id -u)" -ne 0 ]; then
  manager=conda
  packages=(cxx-compiler cmake ninja ccache git python pip)
  optional=(nlohmann_json cli11 libhwy yaml-cpp liburing)
  ! $for_tests || packages+=(gtest gmock openmpi libboost-devel)
elif command -v apt-get >/dev/null; then
  manager=apt
  packages=(g++ cmake ninja-build ccache git ca-certificates python3 python3-pip)
  optional=(nlohmann-json3-dev libcli11-dev libhwy-dev libyaml-cpp-dev liburing-dev python3-dev)
  ! $for_tests || packages+=(libgtest-dev libgmock-dev openmpi-bin python3-venv libboost-context-dev)
elif command -v dnf >/dev/null; then
  manager=dnf
  packages=(gcc-c++ cmake git python3.11 python3.11-pip)  # python3 of version 9 is 3.9, which torch has left
  optional=(ninja-build ccache python3.11-devel json-devel cli11-devel highway-devel yaml-cpp-devel liburing-devel)  # of CRB and EPEL
  ! $for_tests || packages+=(gtest-devel gmock-devel openmpi boost-devel)
else
  manager=none packages=() optional=()
fi

unknown=$cache/packages_unknown_here
missing_packages() {
  if [ -f "$unknown" ]; then all_missing_packages | grep -vxFf "$unknown" || true; else all_missing_packages; fi
}
all_missing_packages() {
  local package
  case $manager in
    apt)
      for package in "${packages[@]}" "${optional[@]}"; do
        dpkg-query -W -f='${Status}\n' "$package" 2>/dev/null | grep -q '^install ok installed$' || echo "$package"
      done
      ;;
    dnf) for package in "${packages[@]}" "${optional[@]}"; do rpm -q --quiet "$package" || echo "$package"; done ;;
    conda)
      for package in "${packages[@]}" "${optional[@]}"; do
        compgen -G "$CONDA_PREFIX/conda-meta/$package-[0-9]*.json" >/dev/null || echo "$package"
      done
      ;;
  esac
}

install_command() {
  case $manager in
    apt) echo "apt-get update && apt-get install --no-install-recommends $*" ;;
    dnf) echo "dnf install --setopt=strict=0 $*" ;;
    conda) echo "${conda##*/} install -c conda-forge $*" ;;
  esac
}

# apt installs nothing where it does not know one name. Unknown ones are not asked for again.
apt_install() {
  local package known=()
  apt-get update -qq || return
  mkdir -p "$cache"
  for package; do
    if apt-cache show "$package" >/dev/null 2>&1; then known+=("$package"); else echo "$package" >>"$unknown"; fi
  done
  [ ${#known[@]} -gt 0 ] || return 0
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${known[@]}"
}

install_packages() {
  local missing log
  mapfile -t missing < <(missing_packages)
  [ ${#missing[@]} -eq 0 ] && return
  if [ $manager != conda ] && [ "$(id -u)" -ne 0 ]; then
    say "these packages are missing, and not needed if what follows works; as root: $(install_command "${missing[@]}")"
    return
  fi
  say "installing packages: ${missing[*]}"
  log=$(mktemp)
  if ! case $manager in
         apt) apt_install "${missing[@]}" ;;
         dnf) dnf install -y --setopt=strict=0 "${missing[@]}" ;;
         conda) "$conda" install -y -c conda-forge "${missing[@]}" ;;
       esac >"$log" 2>&1; then
    tail -n 5 "$log" >&2
    say "$manager failed (its log: $log); going on without ${missing[*]}, which CMake fetches or leaves out"
    return
  fi
  rm -f "$log"
}

# Python's interpreter: the first of 3.10 or later.
py=$(for name in "${PYTHON:-python3}" python3.{14,13,12,11,10}; do
       if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then echo "$name"; break; fi
     done)
tools=$cache/tools
is_new_enough() { [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }
has_cmake() {
  [ -x "$tools/bin/cmake" ] && [ -x "$tools/bin/ninja" ] ||
    { command -v ninja && is_new_enough 3.22 "$(cmake --version 2>/dev/null | sed -n 's/^cmake version //p')"; } >/dev/null
}

# What no script can do without.
check_compiler() {
  local problems
  problems=$("$root/scripts/check_machine.sh") && return
  while read -r problem; do say "$problem"; done <<<"$problems"
  return 1
}
check_essentials() {
  local lacks=0
  ! $for_build || check_compiler || lacks=1
  if [ -z "$py" ] || ! "$py" -m pip --version >/dev/null 2>&1; then
    say "Python 3.10 or later with pip was not found (apt: python3 python3-pip | dnf: python3.11 python3.11-pip | conda: python pip)"
    lacks=1
  fi
  [ $lacks -eq 0 ] || exit 1
}

# fetch WHAT PIP-COMMAND...: says what cannot be had, and how to go on without a network.
fetch() {
  local what=$1
  shift
  "$@" --quiet --disable-pip-version-check --no-cache-dir >&2 && return
  say "$what cannot be fetched from Python's package index, see above. Without a network: install torch $torch_version, CMake and" \
    "Ninja before, or name torch's folder by DEEPSPEED_TORCH_DIR; an index of your own is PIP_INDEX_URL"
  return 1
}

fetch_tools() {
  local partial
  mkdir -p "$cache"
  partial=$(mktemp -d "$cache/tools.partial.XXXXXX")
  say "fetching CMake and Ninja (into $tools)"
  fetch "CMake 3.22 or later with Ninja" "$py" -m pip install --root-user-action=ignore --target "$partial" cmake ninja ||
    { rm -rf "$partial"; exit 1; }
  mkdir -p "$partial/bin"
  # The scripts there import the packages; the programs themselves need no Python.
  [ ! -x "$partial/cmake/data/bin/cmake" ] || ln -sf ../cmake/data/bin/{cmake,ctest,cpack} "$partial/bin/"
  [ ! -x "$partial/ninja/data/bin/ninja" ] || ln -sf ../ninja/data/bin/ninja "$partial/bin/"
  rm -rf "$tools"
  mv "$partial" "$tools" 2>/dev/null || rm -rf "$partial"  # another checkout was faster
}

# The version of the torch in folder $1, of its headers; nothing where headers or libraries lack.
version_in() {
  local header=$1/include/torch/headeronly/version.h
  [ -f "$1/lib/libtorch_cpu.so" ] && [ -f "$header" ] || return 0
  sed -n 's/^#define TORCH_VERSION_\(MAJOR\|MINOR\|PATCH\) \([0-9]*\)$/\2/p' "$header" | paste -sd.
}
usable() { [ "$(version_in "$1")" = "$torch_version" ]; }

# Whether NVIDIA's libraries lie beside the torch in folder $1, as far as this machine needs them.
has_libraries() { ! $for_cuda || [ -n "$(compgen -G "${1%/torch}/nvidia/cudnn/lib/libcudnn.so*")" ]; }

installed_torch() {
  "$py" - <<'PYTHON' 2>/dev/null || true
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
    fetch "torch $torch_version" "$py" -m pip install --root-user-action=ignore --target "$partial" "${packages[@]}" ||
      { rm -rf "$partial"; exit 1; }
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
  "$python/bin/python" -m pip --version >/dev/null 2>&1 || { rm -rf "$python"; "$py" -m venv "$python"; }
  fetch "torch $torch_version" "$python/bin/python" -m pip install "torch==$torch_version" -r "$requirements"
  cp "$requirements" "$python/requirements.txt"
}

# Makes the virtual environment $1 of the requirements $2; torch comes from that of the tests.
make_clients() {
  local site
  if has_venv "$1" "$2"; then return; fi
  say "fetching clients of the Python package (into $1)"
  rm -rf "$1"
  "$py" -m venv "$1"
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
  fetch "CUDA's compiler $version" "$py" -m pip install --root-user-action=ignore --no-deps --target "$target" "${packages[@]/%/==$version.*}"
  # The wheels hold no names for the linker.
  local folder
  folder=$(echo "$target"/nvidia/cu*)
  ln -s "$(basename "$folder"/lib/libcudart.so.*)" "$folder/lib/libcudart.so"
  ln -s lib "$folder/lib64"
  ln -s "nvidia/$(basename "$folder")" "$target/toolkit"
  touch "$target/complete"
}

# Whether CMake finds the header of the NCCL that the torch in folder $1 was built with (cmake/Cuda.cmake); that of the cache alone is
# cared for.
nccl_package() { sed -n 's/^Requires-Dist: \(nvidia-nccl-cu[0-9]*==[0-9.]*\).*/\1/p' "${1%/torch}"/torch-*.dist-info/METADATA 2>/dev/null; }
has_nccl_header() {
  local nvcc package header version
  nvcc=$(command -v nvcc || compgen -G "${CUDA_HOME:-/none}/bin/nvcc" || compgen -G "$(toolkit_of "$1")/toolkit/bin/nvcc" || true)
  package=$(nccl_package "$1")
  if [ "${DEEPSPEED_CUDA:-}" = OFF ] || [ -z "$nvcc" ] || [ -z "$package" ] || [ "$1" != "$cache/torch-$torch_version/torch" ]; then return 0; fi
  for header in "${1%/torch}"/nvidia/*/include/nccl.h "${nvcc%/bin/nvcc}/include/nccl.h" /usr/local/include/nccl.h /usr/include/nccl.h; do
    version=$(sed -n 's/^#define NCCL_\(MAJOR\|MINOR\) \([0-9]*\)$/\2/p' "$header" 2>/dev/null | paste -sd.)
    case $package in *"==$version".*) [ -z "$version" ] || return 0 ;; esac
  done
  return 1
}

fetch_nccl() {
  local package partial
  package=$(nccl_package "$1")
  partial=$(mktemp -d "$cache/nccl.partial.XXXXXX")
  say "fetching ${package/==/ }, whose header the build needs (250 MB once, beside torch)"
  "$py" -m pip install --quiet --disable-pip-version-check --no-cache-dir --root-user-action=ignore --no-deps --target "$partial" \
    "$package" >&2
  mkdir -p "${1%/torch}/nvidia"
  mv "$partial/nvidia/nccl" "${1%/torch}/nvidia/" 2>/dev/null || true  # another checkout was faster
  rm -rf "$partial"
}

if ! $for_build && [ -z "${DEEPSPEED_TORCH_DIR:-}" ] && [ -f "$record" ] && usable "$(cat "$record")" && has_libraries "$(cat "$record")"; then
  exit 0
fi
if $for_build && [ -z "${DEEPSPEED_TORCH_DIR:-}" ] && [ -f "$record" ] && usable "$(cat "$record")" && has_cmake &&
   { [ -z "$(missing_packages)" ] || { [ "$(id -u)" -ne 0 ] && [ $manager != conda ]; }; } &&
   { ! $for_cuda || { has_libraries "$(cat "$record")" && has_toolkit "$(cat "$record")"; }; } && has_nccl_header "$(cat "$record")" &&
   { ! $for_tests || has_python; } && { ! $for_clients || has_clients; }; then
  exit 0
fi
if [ -n "${DEEPSPEED_TORCH_DIR:-}" ] && ! usable "$DEEPSPEED_TORCH_DIR"; then
  found=$(version_in "$DEEPSPEED_TORCH_DIR")
  say "DEEPSPEED_TORCH_DIR=$DEEPSPEED_TORCH_DIR holds ${found:+torch $found, and }no LibTorch $torch_version${found:+: TORCH_VERSION=$found takes it}"
  exit 1
fi
if $for_build; then
  [ -z "${CXX:-}" ] || check_compiler
  install_packages
fi
[ -n "$py" ] || py=$(command -v python3.11 || true)  # dnf's has come
check_essentials
! $for_build || has_cmake || fetch_tools
torch_dir=$(choose_torch)
mkdir -p "$cache"
printf '%s\n' "$torch_dir" >"$record.$$"
mv "$record.$$" "$record"
if $for_build && $for_cuda && ! has_toolkit "$torch_dir"; then fetch_toolkit "$(toolkit_of "$torch_dir")"; fi
! $for_build || has_nccl_header "$torch_dir" || fetch_nccl "$torch_dir"
if $for_tests && ! has_python; then make_python; fi
if $for_clients; then
  make_clients "$clients" "$client_requirements"
  make_clients "$older_clients" "$older_client_requirements"
fi
say "ready: LibTorch $torch_version at $torch_dir"
