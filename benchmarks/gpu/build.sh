# Shared by run.sh and run_zero3.sh, which set `logs` and `begin` and stand in the project's folder.

readonly tests_limit=180  # seconds; a test that hangs leaves time for the rest

# build_for_this_gpu TARGETS...
build_for_this_gpu() {
  local torch_dir arch
  torch_dir=${DEEPSPEED_TORCH_DIR:-$(python3 -c 'import torch, os; print(os.path.dirname(torch.__file__))')}
  arch=$(python3 -c 'import torch; print("%d%d" % torch.cuda.get_device_capability())')
  [ "$arch" = 90 ] && arch=90a
  # The compiler is the machine's, which may be newer and warn of more.
  cmake --preset cuda -DDEEPSPEED_TORCH_DIR="$torch_dir" -DCMAKE_CUDA_ARCHITECTURES="$arch-real" -DDEEPSPEED_WERROR=OFF \
    >"$logs/configure.log" 2>&1 ||
    { tail -n 30 "$logs/configure.log"; exit 1; }
  ninja -C build/cuda "$@" >"$logs/build.log" 2>&1 || { grep -E -A20 'FAILED|error' "$logs/build.log" | head -n 60; exit 1; }
  echo "built in $((SECONDS - begin)) s for sm_$arch"
}

run_cuda_tests() {
  local status=0
  timeout "$tests_limit" ctest --test-dir build/cuda -R '^cuda$' --output-on-failure >"$logs/tests.log" 2>&1 || status=$?
  [ "$status" != 124 ] || echo "the tests were not done after $tests_limit s"
  tail -n 4 "$logs/tests.log" | grep -E 'tests passed|Failed' || true
  [ "$status" = 0 ] || grep -E 'Failure|FAILED' "$logs/tests.log" | head -n 30 || true
  return "$status"
}
