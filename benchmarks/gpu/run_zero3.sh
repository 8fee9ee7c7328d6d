#!/usr/bin/env bash
# ZeRO-3 and offloading on one GPU, in one call of under 9 minutes, with a short table last:
#   benchmarks/gpu/run_zero3.sh [FOLDER FOR THE LOGS]
# Needs what run.sh needs, and deepspeed 0.19.6 in python3 (or in a folder that PYTHONPATH names) for the comparison.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
logs=${1:-$root/build/cuda-logs}
mkdir -p "$logs"
cd "$root"
begin=$SECONDS
left() { echo $((540 - (SECONDS - begin))); }
source benchmarks/gpu/build.sh

build_for_this_gpu cuda_tests benchmarks/end_to_end_gpt2_throughput
status=0
run_cuda_tests || status=$?
python3 benchmarks/gpu/compare_zero3.py --program build/cuda/benchmarks/end_to_end_gpt2_throughput \
  --seconds "$(($(left) - 120))" | tee "$logs/zero3.md" || status=$?
echo "all in $((SECONDS - begin)) s; tests and checks: $([ "$status" = 0 ] && echo passed || echo FAILED)"
exit "$status"
