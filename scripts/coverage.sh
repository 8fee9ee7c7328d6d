#!/usr/bin/env bash
# Prints how many lines of deepspeed/ the tests run, by folder: scripts/coverage.sh [MODULES...]. It builds the preset
# coverage, passes the tests (of the modules whose names match, as ./test.sh does) and counts. The lines that no test ran
# are in build/coverage/bare_lines.txt. KEEP=1 adds to the counts of the runs before.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build/coverage
"$root/scripts/setup.sh" --tests
"$root/scripts/build.sh" coverage
[ -n "${KEEP:-}" ] || find "$build" -name '*.gcda' -delete

options=(--test-dir "$build" --output-on-failure --no-tests=error --parallel $((2 * $(nproc))))
if [ $# -eq 0 ]; then
  options+=(--exclude-regex '^(install[.]cmake_project|pages[.]tutorial)$')  # minutes of compiling, for lines that others run
else
  options+=(--tests-regex "$(IFS='|'; echo "$*")")
fi
rm -f "$build/retried_tests.txt"
passed=0
ctest "${options[@]}" || passed=$?
"$root/scripts/coverage_report.py" "$build" "$root"
exit $passed
