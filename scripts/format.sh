#!/usr/bin/env bash
# Lays the tracked C++ files out as .clang-format says, by version 14 of clang-format, and the Python files as pyproject.toml says, by
# the version of ruff that it names, which is fetched once. `scripts/format.sh --check` names those that are laid out otherwise, and
# what ruff's linter finds, and fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
is_check=false
[ "${1:-}" != --check ] || is_check=true
status=0

tool=$(command -v clang-format-14 || command -v clang-format) || { echo "format: clang-format 14 is missing (Debian: clang-format-14)" >&2; exit 1; }
"$tool" --version | grep -q 'version 14[.]' || { echo "format: $tool is $("$tool" --version), expected version 14" >&2; exit 1; }
options=(-i)
if $is_check; then options=(--dry-run -Werror); fi
git ls-files -z '*.cpp' '*.h' '*.cu' '*.cuh' | xargs -0 -n 40 -P "$(nproc)" "$tool" "${options[@]}" || status=1

version=$(sed -n 's/^required-version = "==\(.*\)".*/\1/p' pyproject.toml)
folder=${DEEPSPEED_CPP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/deepspeed-cpp}/ruff-$version
if [ ! -x "$folder/bin/ruff" ]; then
  mkdir -p "$(dirname "$folder")"
  partial=$(mktemp -d "$folder.partial.XXXXXX")
  python3 -m pip install --quiet --disable-pip-version-check --no-cache-dir --root-user-action=ignore --target "$partial" "ruff==$version" >&2
  mv -T "$partial" "$folder" 2>/dev/null || rm -rf "$partial"  # another checkout was faster
fi
ruff() { git ls-files -z '*.py' '*.pyi' | xargs -0 "$folder/bin/ruff" "$@"; }
if $is_check; then
  ruff format --quiet --check || { ruff format --check | grep '^Would' >&2; status=1; }
  ruff check --quiet || status=1
else
  ruff check --quiet --fix || status=1
  ruff format --quiet
fi
exit $status
