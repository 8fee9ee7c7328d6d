#!/usr/bin/env bash
# Fetches the archives of what cmake/dependencies.cmake builds in into a folder, for machines without a network:
#   scripts/fetch_deps.sh FOLDER      here
#   DEEPSPEED_DEPS_DIR=FOLDER pip install .      there
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: fetch_deps.sh FOLDER" >&2; exit 2; }
PATH=$PATH:${DEEPSPEED_CPP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/deepspeed-cpp}/tools/bin  # of scripts/setup.sh
command -v cmake >/dev/null || { echo "fetch_deps: cmake is missing: python3 -m pip install cmake" >&2; exit 1; }
exec cmake -DDEEPSPEED_DEPS_DIR="$1" -P "$(dirname "${BASH_SOURCE[0]}")/../cmake/dependencies.cmake"
