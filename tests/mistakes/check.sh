#!/usr/bin/env bash
# Compiles mistakes.cpp with its mistakes, as the build has compiled it without: check.sh BUILD_FOLDER SOURCE.
# Each mistake is one error with the text of its comment, and takes 12 lines at most, single ones 15.
set -euo pipefail
build=$1 source=$(realpath "$2")
command=$(grep '^ *"command": .*/mistakes\.cpp' "$build/compile_commands.json" | head -n 1 |
  sed -e 's/^ *"command": "//' -e 's/",$//' -e 's/\\"/"/g' -e 's/ -o [^ ]* / -fsyntax-only -DMISTAKES -fno-diagnostics-color /')
cd "$build"
if output=$(LC_ALL=C eval "$command" 2>&1); then
  echo "the mistakes compile" >&2
  exit 1
fi

failed=0
fail() {
  echo "$1" >&2
  failed=1
}
mistakes=$(grep -c '^// says: ' "$source")
errors=$(grep -c ' error: ' <<<"$output")
[ "$errors" = "$mistakes" ] || fail "$mistakes mistakes have $errors errors"
while read -r count text; do
  told=$(grep -cF -- "$text" <(grep ' error: ' <<<"$output")) || true
  [ "$told" = "$count" ] || fail "$told errors in place of $count say: $text"
done < <(sed -n 's|^// says: ||p' "$source" | sort | uniq -c)
lines=$(wc -l <<<"$output")
((lines <= 12 * mistakes)) || fail "$mistakes mistakes have $lines lines of errors"
longest=$(awk '/ error: / { count = 0 } { if (++count > most) most = count } END { print most }' <<<"$output")
((longest <= 15)) || fail "an error has $longest lines"
[ $failed = 0 ] || echo "$output" >&2
exit $failed
