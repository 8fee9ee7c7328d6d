#!/usr/bin/env bash
# run_project.sh SCRIPT: runs the commands of a page, of which extract_blocks made SCRIPT, in the folder that it is called
# in. Fails, with the place in the page, where a command fails or prints something else than the page shows.
set -Eeo pipefail
script=$1
printed=$(mktemp)
trap 'rm -f "$printed"' EXIT
place=$script

# What follows, up to end_step, is a block of the page.
begin_step() {
  place=$1
  echo "--- $place"
  exec 3>&1 4>&2 >"$printed" 2>&1
  trap 'exec >&3 2>&4; cat "$printed"; echo "$place: a command failed" >&2' ERR
}

end_step() {
  exec >&3 2>&4
  trap - ERR
  cat "$printed"
}

# expect_output PLACE <LINES: the last step has printed them, in this order. "..." stands for anything.
expect_output() {
  local wanted pattern line
  exec 5<"$printed"
  while IFS= read -r wanted; do
    pattern=$(sed -e 's/[][*?\\]/\\&/g' -e 's/\.\.\./*/g' <<<"$wanted")
    line=
    # shellcheck disable=SC2053
    until [[ -n $line && $line == $pattern ]]; do
      IFS= read -r line <&5 || { echo "$1: the output lacks: $wanted" >&2; exit 1; }
    done
  done
}

# shellcheck disable=SC1090
source "$script"
