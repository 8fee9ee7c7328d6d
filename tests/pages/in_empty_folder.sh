#!/usr/bin/env bash
# in_empty_folder.sh FOLDER COMMAND [ARGUMENTS]: runs the command in the folder, without what earlier runs left there.
set -euo pipefail
rm -rf "$1"
mkdir -p "$1"
cd "$1"
shift
exec "$@"
