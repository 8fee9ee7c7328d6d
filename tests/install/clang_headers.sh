#!/usr/bin/env bash
# Compiles the headers that programs include by clang, as it warns and errs where g++ does not: clang_headers.sh SOURCE TORCH JSON
set -euo pipefail
json=(-isystem "$3")
[ "$3" != /usr/include ] || json=()  # searched anyway, and in its place
for clang in clang++-{19,18,17,16} clang++; do
  if [ "$("$clang" -dumpversion 2>/dev/null | cut -d. -f1 || true)" -ge 16 ] 2>/dev/null; then
    sed -n 's/^  \(deepspeed\/.*[.]h\)).*$\|^  \(deepspeed\/.*[.]h\)$/#include <\1\2>/p' "$1/cmake/PublicHeaders.cmake" |
      "$clang" -x c++ -std=c++20 -fsyntax-only -Wall -Wextra -Werror -DUSE_DISTRIBUTED -DUSE_C10D_GLOO -I "$1" "${json[@]}" \
        -isystem "$2/include" -isystem "$2/include/torch/csrc/api/include" -
    exit
  fi
done
echo "skipped: clang 16 or later is not installed (Debian: clang-16)"
exit 77
