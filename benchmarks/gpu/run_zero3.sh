#!/usr/bin/env bash
# ZeRO-3 and offloading on one GPU, in one call of under 9 minutes, with a short table last:
#   benchmarks/gpu/run_zero3.sh [--smaller|--largest] [FOLDER FOR THE LOGS]
# GPT-2 1.5B, and a GPT of 7B with the optimizer and the parameters in host memory, beside DeepSpeed; with --smaller a GPT of
# 4B, where the host's memory has no room for DeepSpeed's 7B; with --largest the largest models that train: 17B with exact
# fp32 masters, 30B with 16-bit states. Needs what run.sh needs, and deepspeed 0.19.6 in python3 (or in a folder that
# PYTHONPATH names) for the comparison.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
rows=models
case "${1:-}" in --smaller | --largest) rows=${1#--}; shift ;; esac
logs=${1:-$root/build/cuda-logs}
mkdir -p "$logs"
logs=$(cd "$logs" && pwd)
cd "$root"
begin=$SECONDS
left() { echo $((540 - (SECONDS - begin))); }
source benchmarks/gpu/build.sh

build_for_this_gpu cuda_tests benchmarks/end_to_end_gpt2_throughput benchmarks/offload_host_step_limits
status=0
[ "$rows" != models ] || run_cuda_tests || status=$?
python3 benchmarks/gpu/compare_zero3.py --folder build/cuda/benchmarks --rows "$rows" --seconds "$(($(left) - 60))" |
  tee "$logs/zero3_$rows.md" || status=$?
echo "all in $((SECONDS - begin)) s; tests and checks: $([ "$status" = 0 ] && echo passed || echo FAILED)"
exit "$status"
