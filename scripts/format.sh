#!/usr/bin/env bash
# Lays the tracked C++ files out as .clang-format says, by version 14 of clang-format. `scripts/format.sh --check` names
# those that are laid out otherwise, and fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tool=$(command -v clang-format-14 || command -v clang-format) || { echo "format: clang-format 14 is missing (Debian: clang-format-14)" >&2; exit 1; }
"$tool" --version | grep -q 'version 14[.]' || { echo "format: $tool is $("$tool" --version), expected version 14" >&2; exit 1; }
options=(-i)
[ "${1:-}" != --check ] || options=(--dry-run -Werror)
git ls-files -z '*.cpp' '*.h' '*.cu' '*.cuh' | xargs -0 -n 40 -P "$(nproc)" "$tool" "${options[@]}"
