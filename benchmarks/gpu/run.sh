#!/usr/bin/env bash
# Builds, checks and times everything for one GPU in one call of under 9 minutes, and prints a short table last:
#   benchmarks/gpu/run.sh [FOLDER FOR THE LOGS]
# Takes the torch 2.11.0 of python3 (or DEEPSPEED_TORCH_DIR) with its CUDA libraries, nvcc, cmake, ninja and the packages
# that scripts/setup.sh names; downloads nothing.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
logs=${1:-$root/build/cuda-logs}
mkdir -p "$logs"
cd "$root"
begin=$SECONDS
left() { echo $((540 - (SECONDS - begin))); }

torch_dir=${DEEPSPEED_TORCH_DIR:-$(python3 -c 'import torch, os; print(os.path.dirname(torch.__file__))')}
arch=$(python3 -c 'import torch; print("%d%d" % torch.cuda.get_device_capability())')
[ "$arch" = 90 ] && arch=90a
cmake --preset cuda -DDEEPSPEED_TORCH_DIR="$torch_dir" -DCMAKE_CUDA_ARCHITECTURES="$arch-real" >"$logs/configure.log" 2>&1 ||
  { tail -n 30 "$logs/configure.log"; exit 1; }
ninja -C build/cuda cuda_tests kernels_tests benchmarks/end_to_end_gpt2_throughput benchmarks/kernels_device_bandwidth \
  >"$logs/build.log" 2>&1 || { grep -E -A20 'FAILED|error' "$logs/build.log" | head -n 60; exit 1; }
echo "built in $((SECONDS - begin)) s for sm_$arch"

status=0
ctest --test-dir build/cuda -R '^cuda$' --output-on-failure >"$logs/tests.log" 2>&1 || status=$?
tail -n 4 "$logs/tests.log" | grep -E 'tests passed|Failed' || true
[ "$status" = 0 ] || grep -E 'Failure|FAILED' "$logs/tests.log" | head -n 30
build/cuda/benchmarks/kernels_device_bandwidth | tee "$logs/kernels.md" || status=$?
python3 benchmarks/gpu/compare.py --program build/cuda/benchmarks/end_to_end_gpt2_throughput \
  --seconds "$(($(left) - 90))" | tee "$logs/gpt2.md" || status=$?
echo "all in $((SECONDS - begin)) s; tests and checks: $([ "$status" = 0 ] && echo passed || echo FAILED)"
exit "$status"
