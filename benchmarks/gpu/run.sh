#!/usr/bin/env bash
# Builds, checks and times everything for one GPU in one call of under 9 minutes, and prints a short table last:
#   benchmarks/gpu/run.sh [FOLDER FOR THE LOGS]
# Takes the torch 2.11.0 of python3 (or DEEPSPEED_TORCH_DIR) with its CUDA libraries, nvcc, cmake, ninja and the packages
# that scripts/setup.sh names; downloads nothing.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
logs=${1:-$root/build/cuda-logs}
mkdir -p "$logs"
logs=$(cd "$logs" && pwd)
cd "$root"
begin=$SECONDS
left() { echo $((540 - (SECONDS - begin))); }

source benchmarks/gpu/build.sh

build_for_this_gpu cuda_tests kernels_tests benchmarks/end_to_end_gpt2_throughput benchmarks/kernels_device_bandwidth
status=0
run_cuda_tests || status=$?
build/cuda/benchmarks/kernels_device_bandwidth | tee "$logs/kernels.md" || status=$?
python3 benchmarks/gpu/compare.py --program build/cuda/benchmarks/end_to_end_gpt2_throughput \
  --seconds "$(($(left) - 90))" | tee "$logs/gpt2.md" || status=$?
echo "all in $((SECONDS - begin)) s; tests and checks: $([ "$status" = 0 ] && echo passed || echo FAILED)"
exit "$status"
