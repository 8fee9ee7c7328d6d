#!/usr/bin/env bash
# Builds, checks and times everything for one GPU in one call of under 9 minutes, the most valuable first:
#   benchmarks/gpu/run.sh [FOLDER FOR THE LOGS]
# Tests on the device, kernels beside the device's bandwidth, the fused operators and the transformer layer against torch eager and
# torch.compile, GPT-2 of 124M and 1.5B from C++ and from Python against torch and DeepSpeed,
# ZeRO-3 and offloading of 7B beside DeepSpeed. Other calls: --smaller offloads 4B, where the host's memory has no room for
# DeepSpeed's 7B; --largest trains the largest models, 17B with exact fp32 masters and 30B with 16-bit states.
#
# Takes the torch 2.11 of python3 (or DEEPSPEED_TORCH_DIR) with its CUDA libraries, nvcc, g++, cmake and ninja; downloads
# nothing. What benchmarks/gpu/pack.sh has packed (PACK, else build/gpu-pack) stands in for Debian's packages.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
rows=models
case "${1:-}" in --smaller | --largest) rows=${1#--}; shift ;; esac
logs=${1:-$root/build/gpu-logs}
mkdir -p "$logs"
logs=$(cd "$logs" && pwd)
pack=${PACK:-$root/build/gpu-pack}
cd "$root"
begin=$SECONDS
readonly limit=530 tests_limit=150  # seconds; a test that hangs leaves time for the rest
left() { echo $((limit - (SECONDS - begin))); }
said() { echo "[$((SECONDS - begin)) s] $*"; }

torch_dir=${DEEPSPEED_TORCH_DIR:-$(python3 -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])')}
[ ! -d "$pack/usr" ] || export CMAKE_PREFIX_PATH=$pack/usr${CMAKE_PREFIX_PATH:+:$CMAKE_PREFIX_PATH}
build=$root/build/gpu
# The compiler is the machine's, which may be newer and warn of more.
cmake --preset release -B "$build" -DDEEPSPEED_CUDA=ON -DDEEPSPEED_PYTHON=ON -DPython_EXECUTABLE="$(command -v python3)" \
  -DDEEPSPEED_TORCH_DIR="$torch_dir" -DDEEPSPEED_WERROR=OFF >"$logs/configure.log" 2>&1 || { tail -n 30 "$logs/configure.log"; exit 1; }
said "configured"
targets=(cuda_tests kernels_tests benchmarks/end_to_end_gpt2_throughput benchmarks/kernels_device_bandwidth
         benchmarks/kernels_fused_ops benchmarks/offload_host_step_limits _core)
ninja -C "$build" "${targets[@]}" >"$logs/build.log" 2>&1 || { grep -a -E -A20 'FAILED|error' "$logs/build.log" | head -n 60; exit 1; }
said "built on $(nproc) cores"
python3 - <<'PYTHON'
import ctypes, sys
try:
    ctypes.CDLL("libcuda.so.1")
except OSError as error:
    sys.exit(f"run.sh: all is built, and what follows wants a GPU: {error}")
PYTHON

status=0
if [ "$rows" != largest ]; then
  timeout "$tests_limit" ctest --test-dir "$build" -R '^cuda$' --output-on-failure >"$logs/tests.log" 2>&1 || status=$?
  [ "$status" != 124 ] || echo "the tests were not done after $tests_limit s"
  grep -E 'tests passed|[*]{3}|Failure|FAILED' "$logs/tests.log" | head -n 40 || true
  said "tests on the device: $([ "$status" = 0 ] && echo passed || echo FAILED)"
  timeout 60 "$build/benchmarks/kernels_device_bandwidth" | tee "$logs/kernels.md" || status=1
  said "kernels"
fi
if [ "$rows" = models ]; then
  # Rows of BERT's width in bf16, the vocabulary of GPT-2.
  timeout 60 "$build/benchmarks/kernels_fused_ops" --device cuda --dtype bfloat16 --rows 65536 --vocabulary 50257 --rounds 5 |
    tee "$logs/fused_ops.txt" || status=1
  said "fused operators"
  # BERT large. torch.compile takes half a minute for a row of its own.
  PYTHONPATH=$build/python timeout 120 python3 benchmarks/kernels/transformer_layer.py --device cuda --hidden 1024 --heads 16 --batch 32 \
    --sequences 512 128 --dtypes bfloat16 float32 --peers encoder written compiled_written --repeats 5 --seconds 75 |
    tee "$logs/transformer_layer.md" || status=1
  said "transformer layer"
fi
peer=()
[ ! -d "$pack/peer" ] || peer=(--deepspeed "$pack/peer")
if [ "$rows" = models ]; then
  python3 benchmarks/gpu/compare.py --program "$build/benchmarks/end_to_end_gpt2_throughput" --package "$build/python" \
    "${peer[@]}" --seconds "$(($(left) / 2))" | tee "$logs/gpt2.md" || status=1
  said "GPT-2"
fi
PYTHONPATH=$pack/peer${PYTHONPATH:+:$PYTHONPATH} python3 benchmarks/gpu/compare_zero3.py --folder "$build/benchmarks" --rows "$rows" \
  --seconds "$(($(left) - 60))" | tee "$logs/zero3_$rows.md" || status=1
said "all; tests and checks: $([ "$status" = 0 ] && echo passed || echo FAILED)"
exit "$status"
