#!/usr/bin/env bash
# mpirun.sh TEXT PROGRAM [ARGUMENTS]: runs PROGRAM on two ranks with plain mpirun. Passes where it ends well and its
# output has TEXT; 77 (skipped) where there is no mpirun.
set -euo pipefail
text=$1
shift
command -v mpirun >/dev/null || { echo "skipped: mpirun is not installed (Debian: openmpi-bin)"; exit 77; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_SIZE MASTER_ADDR
output=$(mktemp)
trap 'rm -f "$output"' EXIT
code=0
mpirun --oversubscribe -np 2 "$@" >"$output" 2>&1 || code=$?
cat "$output"
if [ "$code" -ne 0 ]; then
  echo "mpirun ended with $code" >&2
  exit 1
fi
grep -qF -- "$text" "$output" || { echo "the output lacks: $text" >&2; exit 1; }
