#!/usr/bin/env bash
# Makes the artefacts of a release in build/release-<version>: it passes the tests, packs the library (an archive) and the Python
# package (wheels) for each torch, and writes SHA256SUMS. A checkout of the same sources compiles nothing where they lie in the cache
# folder (python/release_cache.py).
#   scripts/release.sh            the artefacts
#   scripts/release.sh --tag      also the tag v<version>, of the commit that was built
#   TORCH_VERSIONS="2.11.0"       torch versions to build for (default: 2.11.0 2.15.0)
#   PYTHONS="python3.10 python3"  CPythons to make a wheel for (default: python3)
# The version is that of project() in CMakeLists.txt. It stops where a file is changed, or CHANGELOG.md has no entry of the version.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
fail() { echo "release: $*" >&2; exit 1; }
case "${1:-}" in "" | --tag) ;; *) fail "unknown argument $1, expected --tag" ;; esac

version=$(sed -n 's/^project(deepspeed VERSION \([0-9.]*\) .*/\1/p' CMakeLists.txt)
[ -n "$version" ] || fail "CMakeLists.txt names no version"
[ -z "$(git status --porcelain)" ] || fail "files are changed: commit them first"
grep -q "^## $version, [0-9]" CHANGELOG.md || fail "CHANGELOG.md has no line '## $version, <date>'"
commit=$(git rev-parse HEAD)
if [ "$(git rev-parse -q --verify "v$version^{commit}" || echo "$commit")" != "$commit" ]; then
  fail "the tag v$version is of another commit: raise the version in CMakeLists.txt"
fi

output=$PWD/build/release-$version
rm -rf "$output"
mkdir -p "$output"
for torch in ${TORCH_VERSIONS:-2.11.0 2.15.0}; do
  export TORCH_VERSION=$torch
  DEEPSPEED_WERROR=ON ./test.sh
  scripts/wheel.sh --archive "$output"
  for python in ${PYTHONS:-python3}; do
    PYTHON=$python scripts/wheel.sh "$output"
  done
done
git archive --prefix="deepspeed-cpp-$version/" --output "$output/deepspeed-cpp-$version.tar.gz" "$commit"
(cd "$output" && find . -type f ! -name SHA256SUMS -printf '%P\n' | LC_ALL=C sort | xargs -d '\n' sha256sum >SHA256SUMS)
[ "${1:-}" != --tag ] || git tag --annotate --message "deepspeed-cpp $version" "v$version" "$commit"
echo "release: $output"
cat "$output/SHA256SUMS"
