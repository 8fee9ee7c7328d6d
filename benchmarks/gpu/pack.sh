#!/usr/bin/env bash
# Packs what benchmarks/gpu/run.py needs on a machine with a GPU that has no network and none of Debian's packages:
#   benchmarks/gpu/pack.sh [FOLDER]     (build/gpu-pack)
# FOLDER/programs.tar.xz gets the programs that run there, built with CUDA and stripped, FOLDER/usr headers and libraries of
# the Debian packages that the build takes, FOLDER/peer DeepSpeed 0.19.6 with what it imports. That machine has Python (3.12,
# or what PEER_PYTHON says) with torch 2.11 and its CUDA libraries, and for what has to be built there nvcc of the same CUDA
# version, g++, cmake and ninja. Run scripts/setup.sh --tests first. Without a network DeepSpeed is left out.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
pack=${1:-$root/build/gpu-pack}
most_bytes=$((50 << 20))  # the tree travels beside it
rm -rf "$pack"
mkdir -p "$pack"
pack=$(cd "$pack" && pwd)

# A library's shared file travels with its names; of Gloo the headers alone are used.
packages=(nlohmann-json3-dev libcli11-dev libhwy-dev libhwy1 libgloo-dev
          liburing-dev liburing2 libgtest-dev libgmock-dev googletest)
dpkg-query --listfiles "${packages[@]}" |
  grep -E '^(/usr/include/|/usr(/lib/[^/]*|/share|/lib)/cmake/|/usr/lib/[^/]*/lib[^/]*[.](so([.][0-9.]*)?|a)$)' | grep -v '/libgloo' |
  sort -u | while read -r file; do if [ ! -d "$file" ]; then printf '%s\n' "${file#/}"; fi; done |
  tar -C / -c -T - | tar -C "$pack" -x

# The programs share most of their code, so they are packed as one.
programs=(tests/cuda_tests benchmarks/{end_to_end_gpt2_throughput,kernels_device_bandwidth,kernels_fused_ops,offload_host_step_limits})
"$root/scripts/build.sh" release "${programs[@]}"
build=$root/build/release
[ -e "$build/lib/libdeepspeed_cuda.so" ] || { echo "pack.sh: the build has no CUDA; put nvcc on PATH" >&2; exit 1; }
stripped=$(mktemp -d)
trap 'rm -rf "$stripped"' EXIT
cp -P "${programs[@]/#/$build/}" "$build"/lib/libdeepspeed_cuda.so* "$stripped"
find "$stripped" -type f -exec strip --strip-unneeded {} +
tar -C "$stripped" -c . | xz -T0 -9 >"$pack/programs.tar.xz"

# DeepSpeed's package is of Python alone, and compiles its operators where it runs.
peer_python=${PEER_PYTHON:-3.12}
cache=${DEEPSPEED_CPP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/deepspeed-cpp}
builders=$(mktemp -d)
trap 'rm -rf "$stripped" "$builders"' EXIT
pip=("$cache/python-2.11.0/bin/python" -m pip --quiet --disable-pip-version-check --no-cache-dir install --upgrade)
if "${pip[@]}" --target "$builders" setuptools wheel packaging py-cpuinfo 2>"$pack/pip.log" &&
   DS_BUILD_OPS=0 PYTHONPATH=$builders "${pip[@]}" --target "$pack/peer" --no-deps --no-build-isolation deepspeed==0.19.6 \
     2>>"$pack/pip.log" &&
   "${pip[@]}" --target "$pack/peer" --only-binary=:all: --python-version "$peer_python" --implementation cp --platform manylinux_2_17_x86_64 \
     --platform manylinux2014_x86_64 --platform manylinux_2_28_x86_64 hjson pydantic einops msgpack py-cpuinfo psutil tqdm \
     2>>"$pack/pip.log"; then
  rm -rf "$pack/pip.log" "$pack/peer/bin"
  find "$pack/peer" -name __pycache__ -prune -exec rm -rf {} +
else
  tail -n 3 "$pack/pip.log" >&2
  echo "pack.sh: DeepSpeed is left out, nothing will be compared with it" >&2
  rm -rf "$pack/peer"
fi

bytes=$(du --bytes --summarize "$pack" | cut -f1)
echo "$pack: $((bytes >> 20)) MiB"
[ "$bytes" -le "$most_bytes" ] || { echo "pack.sh: more than $((most_bytes >> 20)) MiB" >&2; exit 1; }
