#!/usr/bin/env bash
# Compiles everything for ARM (aarch64) on x86-64, warnings as errors, and runs the unit tests and a training of two ranks under
# qemu: scripts/aarch64.sh [modules...]. Without modules it runs all that need neither a GPU nor Python, which takes hours;
# GTEST_FILTER chooses tests. QEMU_CPU chooses the processor: max (the default: SVE2), "max,sve=off" (NEON), neoverse-n1.
#
# It needs Debian's g++-aarch64-linux-gnu, qemu-user and googletest, and Linux 6.7 or later, where ARM's programs start each other in
# a name space of their own. torch's wheel for ARM comes into the cache folder of scripts/setup.sh (420 MB once). The logs are in
# build/aarch64/qemu; `left_out` below says which tests qemu cannot pass, and why.
set -euo pipefail
root=$(cd "${BASH_SOURCE[0]%/*}/.." && pwd)
torch_version=${TORCH_VERSION:-2.11.0}
cache=${DEEPSPEED_CPP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/deepspeed-cpp}
build=$root/build/aarch64
googletest=${GOOGLETEST_SOURCE:-/usr/src/googletest}
say() { printf 'aarch64: %s\n' "$*" >&2; }

lacks=()
command -v aarch64-linux-gnu-g++ >/dev/null || lacks+=("the cross compiler aarch64-linux-gnu-g++ (apt: g++-aarch64-linux-gnu)")
command -v qemu-aarch64 >/dev/null || lacks+=("qemu-aarch64 (apt: qemu-user)")
[ -f "$googletest/CMakeLists.txt" ] || lacks+=("GoogleTest's source in $googletest (apt: googletest)")
if [ ${#lacks[@]} -gt 0 ]; then
  printf -v text '%s, ' "${lacks[@]}"
  say "missing: ${text%, }"
  exit 1
fi

# ARM's programs start each other as any others do, in a name space of their own.
export QEMU_LD_PREFIX=/usr/aarch64-linux-gnu QEMU_CPU=${QEMU_CPU:-max}
header='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
emulate() {
  # shellcheck disable=SC2016
  unshare --user --map-root-user --mount sh -c 'mount -t binfmt_misc none /proc/sys/fs/binfmt_misc &&
    printf %s "$1" >/proc/sys/fs/binfmt_misc/register && shift && exec "$@"' sh ":aarch64:M::$header:$mask:$(command -v qemu-aarch64):F" "$@"
}
if ! why_not=$(emulate true 2>&1); then
  say "programs of ARM cannot start here, which takes Linux 6.7 or later and user name spaces (found $(uname -r): ${why_not##*$'\n'})"
  exit 1
fi

# torch for ARM, with NVIDIA's two libraries that its CPU library loads.
torch=$cache/torch-$torch_version-aarch64
if [ ! -f "$torch/torch/lib/libtorch_cpu.so" ]; then
  mkdir -p "$cache"
  partial=$(mktemp -d "$torch.partial.XXXXXX")
  say "fetching torch $torch_version for ARM (420 MB once, into $torch)"
  platforms=(--platform manylinux2014_aarch64)
  for glibc in {17..28}; do platforms+=(--platform "manylinux_2_${glibc}_aarch64"); done
  python3 -m pip download --quiet --disable-pip-version-check --no-cache-dir "${platforms[@]}" --only-binary=:all: --no-deps \
    --python-version 3.11 --dest "$partial" "torch==$torch_version" "nvidia-cuda-runtime>=13,<14" "nvidia-cuda-cupti>=13,<14" >&2
  for wheel in "$partial"/*.whl; do python3 -m zipfile -e "$wheel" "$partial"; done
  rm "$partial"/*.whl
  rm -rf "$torch"
  mv "$partial" "$torch" 2>/dev/null || rm -rf "$partial"  # another checkout was faster
fi

# GoogleTest, then what scripts/build.sh builds of the preset.
if [ ! -f "$build/googletest/lib/libgtest.a" ]; then
  mkdir -p "$build"
  { cmake -S "$googletest" -B "$build/googletest/build" -G Ninja -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
      -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ -DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc -DCMAKE_BUILD_TYPE=Release \
      -DCMAKE_INSTALL_PREFIX="$build/googletest" -DCMAKE_INSTALL_LIBDIR=lib &&
    cmake --build "$build/googletest/build" --target install; } >"$build/googletest.log" 2>&1 ||
    { tail -n 30 "$build/googletest.log" >&2; exit 1; }
fi
# Without torch's modules first: they show soonest what the processor makes different.
modules=("$@")
[ ${#modules[@]} -gt 0 ] || modules=(kernels base config launcher monitor comm io device checkpoint ops optim zero precision profile
                                     random tensor autograd activation pipe plan engine equivalence examples)
DEEPSPEED_TORCH_DIR=$torch/torch "$root/scripts/build.sh" aarch64 ${JOBS:+-j"$JOBS"} deepspeed app_deepspeed app_ds_node example_gpt2 \
  "${modules[@]/%/_tests}"

# Tests that qemu cannot pass, by module, each with the reason.
declare -A left_out=()

logs=$build/qemu
mkdir -p "$logs"
status=0
for module in "${modules[@]}"; do
  say "${module}_tests (QEMU_CPU=$QEMU_CPU)"
  emulate "$build/tests/${module}_tests" --gtest_filter="${GTEST_FILTER:-*}-${left_out[$module]:-}" >"$logs/$module.log" 2>&1 || status=1
  sed -n 's/^\[  \(PASSED\|SKIPPED\|FAILED\)  *\] /  \1 /p' "$logs/$module.log" >&2
done

say "a training of two ranks (QEMU_CPU=$QEMU_CPU)"
emulate "$build/bin/deepspeed" --num_procs 2 "$build/examples/gpt2" --deepspeed_config "$root/examples/gpt2/ds_config.json" \
  --data "$root/README.md" --steps 4 --layers 2 --heads 2 --width 32 --context 32 >"$logs/training.log" 2>&1 || status=1
tail -n 3 "$logs/training.log" >&2
exit $status
