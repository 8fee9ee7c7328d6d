#!/usr/bin/env bash
# Sets up, builds and passes the tests. `./test.sh config` runs the modules whose names match; `./test.sh --list` names
# them. `./test.sh clients` installs Accelerate (two versions), Transformers and the other clients of the Python package, and
# runs those. PRESET chooses another CMake preset (PRESET=asan ./test.sh), GTEST_FILTER single tests. MAY_SKIP=FILE makes a
# test fail that skips itself for a reason which no line of FILE matches; skipped_tests.txt of the build folder lists them.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
preset=${PRESET:-release}
environment=--tests
[ "${1:-}" != clients ] || environment=--clients
"$root/scripts/setup.sh" "$environment"
DEEPSPEED_TESTS=ON "$root/scripts/build.sh" "$preset"

build=$root/build/$preset
[ "${TORCH_VERSION:-2.11.0}" = 2.11.0 ] || build=$root/build/$preset-torch-$TORCH_VERSION
# Many tests wait rather than compute, so more run at a time than there are cores.
options=(--test-dir "$build" --output-on-failure --no-tests=error --parallel $((2 * $(nproc))))
case "${1:-}" in
  --list) exec ctest --test-dir "$build" --show-only ;;
  "") options+=(--exclude-regex '^clients[.]') ;;
  *) options+=(--tests-regex "$(IFS='|'; echo "$*")") ;;
esac
# Tests that need a second try are named as they come (tests/run_once_more.py).
retried=$build/retried_tests.txt
: >"$retried"
: >"$build/skipped_tests.txt"
[ -z "${MAY_SKIP:-}" ] || MAY_SKIP=$(realpath -e "$MAY_SKIP")
tail -f --pid=$$ "$retried" 2>/dev/null | sed -u 's/^/second try: /' >&2 &
exec ctest "${options[@]}"
